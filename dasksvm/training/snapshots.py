"""Snapshots of a run: files in a folder, each with the complete state of the learner, of which the newest few are kept.

Each is a file of arrays (`array_file`). Its name starts with the number of the executor that wrote it: if an executor that was
considered lost comes back, its snapshots sort before those of its successor. An executor claims its number by creating a file,
so two executors that start in the same folder at once get different numbers.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np

from dasksvm.data import array_file
from dasksvm.data.sources import Examples
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings

KIND, VERSION = "dasksvm-snapshot", 2
NAME = re.compile(r"snapshot-(\d{4,})-(\d{6,})")
CLAIM = re.compile(r"executor-(\d{4,})")
KEPT = 3
# Assumed write speed in bytes per second, until snapshots of different sizes show how fast the storage is.
SPEED = 2e8
# Number of newest snapshots from which the time of the next one is predicted: the speed of storage can change.
RECENT = 8
# Their sizes must differ by this factor before the time per byte can be told from the time per file.
APART = 1.5
# Number of labels that are compared to tell one data set from another.
COMPARED = 4096
# The array that holds the entries of `history_` as JSON.
HISTORY = "history"
# Errors that reading a damaged file, or a file on a disk that is gone, can raise.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, OSError, MemoryError)
Name = tuple[int, int]


@dataclass(frozen=True)
class Pace:
    """How often a snapshot is written.

    Attributes
    ----------
    every : float
        Least number of seconds from the beginning of one snapshot to the beginning of the next.
    share : float
        Share of the running time that all snapshots together may take; the next one is put off until it fits. Infinite if the
        user has set the interval.
    wait : float
        Longest time in seconds, after the end of a snapshot, by which `share` can put off the next one.
    """

    every: float
    share: float = math.inf
    wait: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often the snapshots of a run are written.

    Attributes
    ----------
    folder : str
        Must be on storage that the coordinator's worker, and any worker that may replace it, can reach.
    pace : Pace
    resume : bool
        Whether to resume from the snapshots in the folder; if not, there must not be any.
    run : dict of str to str
        What defines the run. A run with another definition cannot resume from its snapshots.
    seeded : bool
        Whether the seed is part of the definition; if not, the seed of the snapshots is used.
    """

    folder: str
    pace: Pace
    resume: bool
    run: dict[str, str]
    seeded: bool


@dataclass(frozen=True)
class Memo:
    """What the driver stores with a snapshot.

    Attributes
    ----------
    entries : list of dict
        The history so far.
    evaluated : int
        Number of finished copies that have been evaluated.
    seconds : float
        Running time so far, summed over all executors of the run.
    """

    entries: list[dict[str, Any]]
    evaluated: int
    seconds: float


def defined_by(settings: Settings, examples: Examples) -> dict[str, str]:
    """Describe a run, except for its seed, so that it can be compared with another: numbers as text, arrays by checksum."""
    chunks, codes = (
        np.array(examples.source.chunks),
        examples.columns.codes(np.arange(min(COMPARED, len(examples.columns)))),
    )
    parts = {"form": examples.form, "classes": examples.coding, "chunks": chunks, "labels": codes}
    found = {"solver": type(settings).__name__, **dict(_flat("", replace(settings, seed=0)))}
    for name, part in parts.items():
        found |= _flat(name, part)
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        for each in fields(value):
            yield from _flat(f"{name}.{each.name}".lstrip("."), getattr(value, each.name))
    elif isinstance(value, np.ndarray):
        yield name, f"{value.shape} {crc32(np.ascontiguousarray(value).tobytes()):08x}"
    else:
        yield name, str(value)


def snapshots_in(folder: Path) -> list[Name]:
    """List the snapshots in a folder, oldest first, each as the number of its executor and its own number."""
    found = (NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted((int(match[1]), int(match[2])) for match in found if match)


class WriteTime:
    """Predicts how long it takes to write a snapshot: a fixed time per file (network storage) plus a time per byte.

    Both are fitted to the newest snapshots by least squares.
    """

    def __init__(self) -> None:
        self._written: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def learn(self, size: int, seconds: float) -> None:
        """Record how long it took to write a snapshot of `size` bytes."""
        self._written.append((float(size), seconds))

    def predict(self, size: int) -> float:
        """Predict the seconds for a snapshot of `size` bytes."""
        if not self._written:
            return size / SPEED
        sizes, times = np.array(self._written).T
        mean_size, mean_time = sizes.mean(), times.mean()
        if sizes.max() >= APART * sizes.min():
            from_mean = sizes - mean_size
            each_byte = max(from_mean @ times / (from_mean @ from_mean), 0.0)
            if each_byte * mean_size > mean_time:  # the time per file would be negative
                each_byte = sizes @ times / (sizes @ sizes)
        else:
            each_byte = min(1 / SPEED, mean_time / mean_size)
        each_file = max(mean_time - each_byte * mean_size, 0.0)
        return float(each_file + each_byte * size)


class Snapshots:
    """Writes the snapshots of a run for one executor, and restores the newest one.

    Parameters
    ----------
    checkpoint : Checkpoint
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.folder = Path(checkpoint.folder)
        self._epoch, self._number = 1, 0
        # `_began` and `_ended`: when the last snapshot began and ended, on the clock of the run. `_spent`: seconds that this
        # executor has spent on all its snapshots.
        self._began = self._ended = self._spent = 0.0
        # Do not compute the size of the state again before this time.
        self._not_before = 0.0
        self._write_time = WriteTime()
        self._applied = -1

    def begin(self, fresh: Learner) -> tuple[Learner, Memo | None, list[str]]:
        """Restore the newest readable snapshot, or return the fresh learner if there is none.

        Parameters
        ----------
        fresh : Learner
            A learner that has been fed.

        Returns
        -------
        learner : Learner
        memo : Memo or None
            What was stored with the snapshot.
        warnings : list of str
            Messages for the user.

        Raises
        ------
        FileExistsError
            If there are snapshots, but the run should not resume.
        AnotherRun
            If they belong to another run.
        ValueError
            If none can be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        names = snapshots_in(self.folder)
        if names and not self.checkpoint.resume:
            raise FileExistsError(f"{self.folder} already holds snapshots of a run: resume it, or use another folder.")
        claimed = self._claim(names[-1][0] + 1 if names else 1)
        for torn in self.folder.glob("snapshot-*.part"):
            torn.unlink(missing_ok=True)
        bad: list[str] = []
        for name in reversed(names):
            try:
                learner, memo = self._read(name, fresh.settings)
            except UNREADABLE as error:
                bad.append(f"the snapshot {self._path(name)} cannot be used: {error}")
                continue
            self._began = self._ended = memo.seconds
            return learner, memo, [*claimed, *bad]
        if bad:
            raise ValueError(f"{'; '.join(bad)}. To start from the beginning, delete the snapshots in {self.folder}.")
        messages = (
            [f"No snapshot found in {self.folder}: starting from the beginning."] if self.checkpoint.resume else []
        )
        return fresh, None, [*claimed, *messages]

    def _claim(self, epoch: int) -> list[str]:
        """Claim the first free executor number that is at least `epoch`; return warnings for the user."""
        self._epoch = max(epoch, self._claimed() + 1)
        while True:
            try:
                self._mark(self._epoch).touch(exist_ok=False)
                break
            except FileExistsError:
                self._epoch += 1
            except OSError as error:
                return [f"cannot write to {self.folder}: {error}."]
        for older in range(max(epoch - 1, 1), self._epoch):
            self._mark(older).unlink(missing_ok=True)
        return []

    def _claimed(self) -> int:
        """Return the highest number that an executor has claimed."""
        found = (CLAIM.fullmatch(path.name) for path in self.folder.iterdir())
        return max((int(match[1]) for match in found if match), default=0)

    def _mark(self, epoch: int) -> Path:
        return self.folder / f"executor-{epoch:04d}"

    def due(self, learner: Learner, seconds: float, *, stop: bool = False) -> bool:
        """Return whether to write a snapshot now, `seconds` after the run began.

        A run that is about to be stopped writes one before, so that it can be resumed.
        """
        if learner.stopped or stop:
            return not learner.stopped
        pace = self.checkpoint.pace
        if learner.applied == self._applied or seconds < max(self._began + pace.every, self._not_before):
            return False
        taking = self._write_time.predict(_size(learner_state.view(learner)))
        self._not_before = min((self._spent + taking) / pace.share, self._ended + pace.wait)
        return seconds >= self._not_before

    def write(self, learner: Learner, memo: Memo) -> str | None:
        """Write a snapshot between two calls of the learner; if that fails, return a warning for the user."""
        start = perf_counter()
        self._began, self._applied = memo.seconds, learner.applied
        state = learner_state.view(learner)
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        scalars = {name: _plain(value) for name, value in state.items() if name not in arrays}
        arrays[HISTORY] = np.frombuffer(json.dumps(memo.entries).encode(), np.uint8)
        memo_fields = {"shown": memo.evaluated, "seconds": memo.seconds}
        about = {"run": self.checkpoint.run, "seed": learner.settings.seed, "memo": memo_fields, "scalars": scalars}
        self._number += 1
        path = self._path((self._epoch, self._number))
        try:
            if self._claimed() > self._epoch:
                return f"another executor has taken over the run in {self.folder}: this one writes no more snapshots."
            array_file.write(path, KIND, VERSION, about, arrays)
            for name in [name for name in snapshots_in(self.folder) if name <= (self._epoch, self._number)][:-KEPT]:
                self._path(name).unlink(missing_ok=True)
        except OSError as error:
            return f"the snapshot {path} could not be written: {error}. The run continues."
        finally:
            taken = perf_counter() - start
            self._spent += taken
            self._ended = self._began + taken
        self._write_time.learn(_size(state), taken)
        return None

    def _read(self, name: Name, settings: Settings) -> tuple[Learner, Memo]:
        about, arrays = array_file.read(self._path(name), KIND, (VERSION,))
        ours, theirs = self.checkpoint.run, about["run"]
        other = [what for what in sorted(ours.keys() | theirs.keys()) if ours.get(what) != theirs.get(what)]
        if not self.checkpoint.seeded:
            settings = replace(settings, seed=about["seed"])
        elif about["seed"] != settings.seed:
            other.append("random_state")
        if other:
            raise AnotherRun(
                f"{self.folder} holds snapshots of another run, which differs from this one in {', '.join(other)}."
            )
        entries = json.loads(arrays.pop(HISTORY).tobytes())
        return learner_state.restore(settings, {**about["scalars"], **arrays}), Memo(
            entries, about["memo"]["shown"], about["memo"]["seconds"]
        )

    def _path(self, name: Name) -> Path:
        return self.folder / f"snapshot-{name[0]:04d}-{name[1]:06d}"


class AnotherRun(RuntimeError):
    """The snapshots in a folder belong to another run."""


def _size(state: dict[str, Any]) -> int:
    """Return the total size in bytes of the arrays of a state."""
    return sum(value.nbytes for value in state.values() if isinstance(value, np.ndarray))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
