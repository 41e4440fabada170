"""Callbacks of a run: history, progress display, time budget, held-out sets.

A watcher is called with the progress and the seconds since the start after every result that the learner takes. If it returns
True, the run is asked to stop.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.chunked import is_dask
from dasksvm.data.dataset import Dataset
from dasksvm.data.feature_names import column_order, names_of_frame
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.preview import Finished, is_due
from dasksvm.solver.messages import Progress

Watcher = Callable[[Progress, float], bool]
Entry = dict[str, Any]
# Length in seconds of the period over which the rate is measured; width of a terminal from which on the long form is shown.
LATELY, WIDE = 10.0, 110


class History:
    """Collects the entries of `history_`; while finishing, one each time the number of steps has grown by one percent."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._due = 0.0

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Add an entry."""
        if progress.phase != "finishing" or progress.steps >= self._due:
            self.entries.append(progress.as_dict() | {"seconds": seconds})
            self._due = 1.01 * progress.steps
        return False

    def resume(self, entries: list[Entry]) -> None:
        """Continue after these entries."""
        self.entries[:] = entries
        steps = [entry["steps"] for entry in entries if "error" not in entry]
        self._due = 1.01 * steps[-1] if steps else 0.0


class HeldOut:
    """Measure the error on held-out data during training (paper 1, section 4.4).

    From time to time a copy of the model is finished and evaluated on the held-out data. This does not change the training, and
    its time does not count as running time. A copy needs up to `cache_size` megabytes of additional memory. If no support vector
    is free, the bias of the copy is the middle of the interval that the examples in the model allow, not all training examples.
    When a HeldOut is used for another training, its results start from scratch.

    Parameters
    ----------
    X : array of shape (n, d), Dataset or its path
    y : array of shape (n,)
        None for a data set, which has its own labels.
    every : int, default=1000
        Number of examples between two evaluations. They take place between batches: after the first batch that reaches or passes
        a multiple of `every`.
    patience : int, optional
        End the training after this many evaluations in a row without a lower error.

    Attributes
    ----------
    entries : list of dict
        One for each evaluation: its `error` and the other values of an entry of `history_`, which contains these entries too.
    best : KernelModel or None
        The model with the lowest error; the first one if there are several.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import HeldOut, LaSVC, train
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> watched = HeldOut(X[1500:], y[1500:], every=100, patience=3)
    >>> run = train((X[:1500], y[:1500]), LaSVC(C=10, selection="active", random_state=0), callbacks=[watched])
    >>> bool(watched.entries[-1]["seen"] < 1500), watched.best is not None
    (True, True)
    """

    def __init__(
        self, X: RowsLike, y: ColumnLike | None = None, *, every: int = 1000, patience: int | None = None
    ) -> None:
        if every < 1 or (patience is not None and patience < 1):
            raise ValueError("every and patience must be at least 1.")
        rows: Any = Dataset.open(X) if isinstance(X, (str, Path)) else X
        if isinstance(rows, Dataset) == (y is not None):
            raise ValueError(
                "y is required if X is an array, and must be None if X is a data set, which has its own labels."
            )
        if isinstance(rows, Dataset):
            self.labels, self.y = rows.needs_labels().classes, rows.as_dask()[1]
        else:
            self._names = names_of_frame(rows) if hasattr(rows, "columns") else None
            rows, self.y = check_array(rows, accept_sparse="csr", dtype="numeric"), column_or_1d(y)
            self.labels = np.unique(self.y)
            check_consistent_length(rows, self.y)
        self.every = every
        self.patience = patience
        self.entries: list[Entry] = []
        self.best: KernelModel | None = None
        self.X: Any = rows
        # The rows that `evaluate` predicts, with their columns in the order of the training data.
        self._matched = self.X

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Do nothing: the errors are measured in `evaluate`."""
        return False

    def begin(self, width: int, classes: NDArray[Any], names: Sequence[str] | None) -> None:
        """Prepare for a training on rows with `width` features and these classes; ValueError if the held-out data do not fit.

        Columns in another order than in the training data are matched by name.
        """
        if isinstance(self.X, Dataset):
            self._matched = self.X.with_features(names)
        else:
            order = column_order(self._names, names, "the held-out rows")
            self._matched = self.X if order is None else self.X[:, order]
        if self.X.shape[1] != width:
            raise ValueError(f"the held-out rows have {self.X.shape[1]} features, but the training rows have {width}.")
        unknown = [label for label in self.labels.tolist() if label not in classes.tolist()]
        if unknown:
            raise ValueError(f"the held-out labels {unknown} are not among the classes {classes.tolist()}.")
        self.entries, self.best = [], None

    def evaluate(self, model: KernelModel, entry: Entry) -> bool:
        """Measure the error of a model and add it to the entry; return whether the training should end."""
        wrong = model.predict(self._matched) != self.y
        entry["error"] = float(np.mean(wrong.compute() if is_dask(wrong) else wrong))
        errors = [entry["error"] for entry in self.entries]
        if not errors or entry["error"] < min(errors):
            self.best = model
        self.entries.append(entry)
        errors.append(entry["error"])
        return self.patience is not None and len(errors) - 1 - int(np.argmin(errors)) >= self.patience


class HeldOutEvaluation:
    """Passes finished copies to the held-out sets, and adds the errors to the history.

    Parameters
    ----------
    held_out : sequence of HeldOut
    history : History
    model_of : callable
        Makes a model from a finished copy.
    """

    def __init__(
        self, held_out: Sequence[HeldOut], history: History, model_of: Callable[[Finished], KernelModel]
    ) -> None:
        self.held_out = held_out
        self.every = tuple(each.every for each in held_out)
        self._history = history
        self._model_of = model_of
        self._seen = 0

    @property
    def entries(self) -> list[Entry]:
        """The history, including the measured errors."""
        return self._history.entries

    def resume(self, entries: list[Entry]) -> None:
        """Continue after these entries: each held-out set gets its own entries back, but not its `best` model."""
        self._history.resume(entries)
        for seen, found in groupby((entry for entry in self.entries if "error" in entry), itemgetter("seen")):
            measured = list(found)
            due = [each for each in self.held_out if is_due((each.every,), self._seen, seen)]
            if len(self.held_out) > 1 and len(due) != len(measured):
                raise ValueError(
                    "the run was started with other held-out sets: pass the same ones in the same order, a single one, or none."
                )
            for each, entry in zip(self.held_out if len(self.held_out) == 1 else due, measured, strict=False):
                each.entries.append(entry)
            self._seen = seen

    def evaluate(self, finished: Finished, seconds: float) -> bool:
        """Evaluate a copy on the held-out sets that are due; True ends the run."""
        seen, model = finished.progress.seen, self._model_of(finished)
        stop = False
        for each in self.held_out:
            if is_due((each.every,), self._seen, seen):
                entry = finished.progress.as_dict() | {"seconds": seconds}
                stop |= each.evaluate(model, entry)
                self._history.entries.append(entry)
        self._seen = seen
        return stop


class TimeBudget:
    """Ask the run to stop after this many seconds; an online solver then finishes the model it has.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._requested_stop = False

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Return True once, when the time is up."""
        over = seconds >= self.seconds and not self._requested_stop and progress.phase != "done"
        self._requested_stop |= over
        return over


class ProgressLines:
    """Show the progress of a run: a bar that is redrawn on a terminal, otherwise one line per second.

    The rate is measured over the last ten seconds, and the remaining time of the passes is estimated from it. How long finishing
    or a check of all examples takes is not known in advance, so no remaining time is shown for them. A line also shows how many
    examples the solver keeps as possible support vectors, and the largest violation of the optimality conditions, or the gap.

    Parameters
    ----------
    examples : int
        Number of examples of all passes that are certain to be made.
    before : int, default=0
        Number of examples that earlier calls have seen.
    stream : text file, optional
        Standard error if not given.
    """

    def __init__(self, examples: int, before: int = 0, stream: TextIO | None = None) -> None:
        self.examples = examples
        self.before = before
        self.stream = sys.stderr if stream is None else stream
        self._last = -float("inf")
        self._marks: deque[tuple[float, int]] = deque()

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Show the progress, unless it was shown a moment ago; the end is always shown."""
        live = self.stream.isatty()
        now = time.monotonic()
        if now - self._last >= (0.1 if live else 1.0) or progress.phase == "done":
            self._last = now
            line = self.line(progress, seconds, _columns(self.stream) - 1 if live else None)
            self.stream.write(f"\r\x1b[K{line}" if live else f"{line}\n")
            self.stream.flush()
        return False

    def line(self, progress: Progress, seconds: float, width: int | None = None) -> str:
        """Describe the progress in one line of at most `width` characters; with None without a limit and without a bar."""
        seen = progress.seen - self.before
        passing = progress.phase == "online" and seen <= self.examples
        rate = self._rate(seen, seconds) if passing else 0.0
        if not passing:
            self._marks.clear()
        if progress.phase == "done":
            rate = seen / max(seconds, 1e-9)
        narrow = width is not None and width < WIDE
        # A narrow terminal needs the space for the bar, next to which the number explains itself.
        counted = [_short(seen) if narrow and passing and rate else f"{_short(seen)} seen"] if seen else []
        counted += [f"{_short(rate)}{'/s' if narrow else ' rows/s'}"] if rate else []
        timed = [_clock(seconds)]
        timed += [f"{_clock((self.examples - seen) / rate)} left"] if passing and rate else []
        parts = [
            f"epoch {progress.epoch + 1}" if progress.phase == "online" and progress.epoch else "",
            ", ".join(counted),
            f"{_short(progress.members)} kept",
            f"{'violation' if progress.measure == 'delta' else progress.measure} {progress.delta.max():.2g}",
            ", ".join(timed),
        ]
        text, head = "  ".join(filter(None, parts)), progress.phase
        share = seen / max(self.examples, 1)
        if width is None:
            return f"{head} {share:.0%}  {text}" if passing else f"{head}  {text}"
        bar = min(max(width - len(f"{head}   {text}"), 0), 10 if narrow else 20) if passing else 0
        drawn = f" {'█' * round(bar * share):░<{bar}}" if bar else ""
        return f"{head}{drawn}  {text}"[:width]

    def _rate(self, seen: int, seconds: float) -> float:
        """Return the examples per second over the last seconds."""
        self._marks.append((seconds, seen))
        while len(self._marks) > 2 and self._marks[1][0] < seconds - LATELY:
            self._marks.popleft()
        since, before = self._marks[0]
        return (seen - before) / (seconds - since) if seconds > since else 0.0

    def note(self, text: str) -> None:
        """Show a line that is not drawn over."""
        self.stream.write(f"\r\x1b[K{text}\n" if self.stream.isatty() else f"{text}\n")
        self.stream.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self.stream.isatty():
            self.stream.write("\n")


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _short(number: float) -> str:
    """Format a number in at most five characters."""
    for unit in ("", "k", "M", "G"):
        if number < (9999.5 if not unit else 999.5):
            return f"{number:,.0f}" if not unit else f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.0f}T"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class WatcherGroup:
    """Call several watchers; the run stops when one of them returns True.

    Parameters
    ----------
    watchers : sequence of callables
    """

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = watchers

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Call them all."""
        answers = [watcher(progress, seconds) for watcher in self.watchers]
        return any(answers)
