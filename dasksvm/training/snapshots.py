"""Snapshots of a run in a folder: the whole state of the learner, complete or absent, the newest few.

Each is a file of arrays (`arrayfile`). Its name has the number of the executor that wrote it, so that those of one that was
thought lost, and comes back, do not stand before its successor's. An executor claims its number by a file, so that of two that
begin in one folder at once one is the other's successor too.
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
# Bytes a second that are assumed to be written until snapshots of different sizes show how fast the storage is.
SPEED = 2e8
# Snapshots from which the time of the next one is predicted: the newest, because storage can become slower or faster.
RECENT = 8
# Their sizes must differ by this factor to tell the time for each byte from the time for each file.
APART = 1.5
# Labels that tell one data set from another.
COMPARED = 4096
# The array that holds what `history_` has, as JSON.
HISTORY = "history"
# What a damaged file, or a disk that has gone, makes of reading.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, OSError, MemoryError)
Name = tuple[int, int]


@dataclass(frozen=True)
class Pace:
    """How often a snapshot is written.

    Attributes
    ----------
    every : float
        Seconds from the beginning of one snapshot to the beginning of the next, at least.
    share : float
        Of the time of the run that all snapshots may take: the next one waits until it fits into that. Infinite where the user
        has said how often.
    wait : float
        Seconds after the end of a snapshot for which the share can put off the next one, at most.
    """

    every: float
    share: float = math.inf
    wait: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is kept.

    Attributes
    ----------
    folder : str
        On storage that the coordinator's worker, and one that replaces it, can reach.
    pace : Pace
    resume : bool
        Whether to go on from what is there; if not, nothing may be there.
    run : dict of str to str
        What defines the run: another one does not go on from its snapshots.
    seeded : bool
        Whether the seed is part of it; if not, it is that of the snapshots.
    """

    folder: str
    pace: Pace
    resume: bool
    run: dict[str, str]
    seeded: bool


@dataclass(frozen=True)
class Memo:
    """What a run has told, kept with a snapshot.

    Attributes
    ----------
    entries : list of dict
        Of `history_`.
    shown : int
        Finished copies looked at.
    seconds : float
        Since the run began, all its executors together.
    """

    entries: list[dict[str, Any]]
    shown: int
    seconds: float


def defined_by(settings: Settings, examples: Examples) -> dict[str, str]:
    """Tell what defines a run, the seed excepted, so that two can be compared: numbers as text, and checksums of arrays."""
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
    """List the snapshots in a folder, the oldest first: the numbers of their executors, and their own."""
    found = (NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted((int(match[1]), int(match[2])) for match in found if match)


class WriteTime:
    """Predicts the seconds that a snapshot takes: a fixed time for each file, as a network needs, and a time for each byte.

    Both are fitted to the newest snapshots by least squares.
    """

    def __init__(self) -> None:
        self._written: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def learn(self, size: int, seconds: float) -> None:
        """Take in that a snapshot of so many bytes took so long."""
        self._written.append((float(size), seconds))

    def predict(self, size: int) -> float:
        """Tell how long one of so many bytes will take."""
        if not self._written:
            return size / SPEED
        sizes, times = np.array(self._written).T
        mean_size, mean_time = sizes.mean(), times.mean()
        if sizes.max() >= APART * sizes.min():
            from_mean = sizes - mean_size
            each_byte = max(from_mean @ times / (from_mean @ from_mean), 0.0)
            if each_byte * mean_size > mean_time:  # the time for each file would be negative
                each_byte = sizes @ times / (sizes @ sizes)
        else:
            each_byte = min(1 / SPEED, mean_time / mean_size)
        each_file = max(mean_time - each_byte * mean_size, 0.0)
        return float(each_file + each_byte * size)


class Snapshots:
    """The snapshots of a run, as one executor sees them.

    Parameters
    ----------
    checkpoint : Checkpoint
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.folder = Path(checkpoint.folder)
        self._epoch, self._number = 1, 0
        # On the clock of the run: when the last snapshot began and ended. All of this executor's together took `_spent` seconds.
        self._began = self._ended = self._spent = 0.0
        # No look at the size of the state before this.
        self._not_before = 0.0
        self._write_time = WriteTime()
        self._applied = -1

    def begin(self, fresh: Learner) -> tuple[Learner, Memo | None, list[str]]:
        """Go on from the newest snapshot that can be read, or begin with a fresh learner.

        Parameters
        ----------
        fresh : Learner
            Which has been fed.

        Returns
        -------
        learner : Learner
        memo : Memo or None
            What came with the snapshot.
        warnings : list of str
            What the user should know.

        Raises
        ------
        FileExistsError
            If there are snapshots, but the run should begin anew.
        ValueError
            If they are another run's, or none can be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        names = snapshots_in(self.folder)
        if names and not self.checkpoint.resume:
            raise FileExistsError(f"{self.folder} holds snapshots of a run: resume it, or give another folder.")
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
            raise ValueError(f"{'; '.join(bad)}. Without snapshots in {self.folder} the run begins anew.")
        anew = [f"No snapshot found in {self.folder}: starting anew."] if self.checkpoint.resume else []
        return fresh, None, [*claimed, *anew]

    def _claim(self, epoch: int) -> list[str]:
        """Take the first number from this one on that no other executor has; say what the user should know."""
        self._epoch = max(epoch, self._claimed() + 1)
        while True:
            try:
                self._mark(self._epoch).touch(exist_ok=False)
                break
            except FileExistsError:
                self._epoch += 1
            except OSError as error:
                return [f"nothing can be written to {self.folder}: {error}."]
        for older in range(max(epoch - 1, 1), self._epoch):
            self._mark(older).unlink(missing_ok=True)
        return []

    def _claimed(self) -> int:
        """Tell the highest number that an executor has claimed."""
        found = (CLAIM.fullmatch(path.name) for path in self.folder.iterdir())
        return max((int(match[1]) for match in found if match), default=0)

    def _mark(self, epoch: int) -> Path:
        return self.folder / f"executor-{epoch:04d}"

    def due(self, learner: Learner, seconds: float, *, stop: bool = False) -> bool:
        """Tell whether it is time for another, `seconds` after the run began; one that will be stopped may go on later."""
        if learner.stopped or stop:
            return not learner.stopped
        pace = self.checkpoint.pace
        if learner.applied == self._applied or seconds < max(self._began + pace.every, self._not_before):
            return False
        taking = self._write_time.predict(_size(learner_state.view(learner)))
        self._not_before = min((self._spent + taking) / pace.share, self._ended + pace.wait)
        return seconds >= self._not_before

    def write(self, learner: Learner, memo: Memo) -> str | None:
        """Write a snapshot between two calls of the learner; say what the user should know, if it could not be written."""
        start = perf_counter()
        self._began, self._applied = memo.seconds, learner.applied
        state = learner_state.view(learner)
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        scalars = {name: _plain(value) for name, value in state.items() if name not in arrays}
        arrays[HISTORY] = np.frombuffer(json.dumps(memo.entries).encode(), np.uint8)
        told = {"shown": memo.shown, "seconds": memo.seconds}
        about = {"run": self.checkpoint.run, "seed": learner.settings.seed, "memo": told, "scalars": scalars}
        self._number += 1
        path = self._path((self._epoch, self._number))
        try:
            if self._claimed() > self._epoch:
                return f"another executor goes on with the run in {self.folder}: this one keeps no more snapshots."
            array_file.write(path, KIND, VERSION, about, arrays)
            for name in [name for name in snapshots_in(self.folder) if name <= (self._epoch, self._number)][:-KEPT]:
                self._path(name).unlink(missing_ok=True)
        except OSError as error:
            return f"the snapshot {path} could not be written: {error}. The run goes on."
        finally:
            taken = perf_counter() - start
            self._spent += taken
            self._ended = self._began + taken
        self._write_time.learn(_size(state), taken)
        return None

    def _read(self, name: Name, settings: Settings) -> tuple[Learner, Memo]:
        about, arrays = array_file.read(self._path(name), KIND, (VERSION,))
        mine, theirs = self.checkpoint.run, about["run"]
        other = [what for what in sorted(mine.keys() | theirs.keys()) if mine.get(what) != theirs.get(what)]
        if not self.checkpoint.seeded:
            settings = replace(settings, seed=about["seed"])
        elif about["seed"] != settings.seed:
            other.append("random_state")
        if other:
            raise AnotherRun(f"{self.folder} holds snapshots of another run, which differs in {', '.join(other)}.")
        entries = json.loads(arrays.pop(HISTORY).tobytes())
        return learner_state.restore(settings, {**about["scalars"], **arrays}), Memo(entries, **about["memo"])

    def _path(self, name: Name) -> Path:
        return self.folder / f"snapshot-{name[0]:04d}-{name[1]:06d}"


class AnotherRun(RuntimeError):
    """The snapshots in a folder are another run's."""


def _size(state: dict[str, Any]) -> int:
    """Bytes of the arrays of a state."""
    return sum(value.nbytes for value in state.values() if isinstance(value, np.ndarray))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
