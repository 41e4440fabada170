"""Snapshots of a run in a folder: the whole state of the learner, complete or absent, the newest few.

Each is a file of arrays (`arrayfile`). Its name has the number of the executor that wrote it, so that those of one that was
thought lost, and comes back, do not stand before its successor's. An executor claims its number by a file, so that of two that
begin in one folder at once one is the other's successor too.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np

from dasksvm import arrayfile
from dasksvm.data.sources import Examples
from dasksvm.solver import snapshot
from dasksvm.solver.learner import Learner
from dasksvm.solver.settings import Settings

KIND, VERSION = "dasksvm-snapshot", 1
NAME = re.compile(r"snapshot-(\d{4,})-(\d{6,})")
CLAIM = re.compile(r"executor-(\d{4,})")
KEPT = 3
# Bytes a second that the first is guessed to be written with.
SPEED = 2e8
# Labels that tell one data set from another.
COMPARED = 4096
# The array that holds what `history_` has, as JSON.
HISTORY = "history"
# What a damaged file, or a disk that has gone, makes of reading.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, OSError, MemoryError)
Name = tuple[int, int]


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is kept.

    Attributes
    ----------
    folder : str
        On storage that the coordinator's worker, and one that replaces it, can reach.
    every : float
        Seconds between two snapshots, at least.
    share : float
        Of the time of the run, they take so much at most.
    resume : bool
        Whether to go on from what is there; if not, nothing may be there.
    run : dict of str to str
        What defines the run: another one does not go on from its snapshots.
    seeded : bool
        Whether the seed is part of it; if not, it is that of the snapshots.
    """

    folder: str
    every: float
    share: float
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
    found = dict(_flat("", replace(settings, seed=0)))
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
        self._last = self._spent = self._not_before = 0.0
        self._speed = SPEED
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
            self._last = memo.seconds
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
        if learner.applied == self._applied or seconds < max(self._last + self.checkpoint.every, self._not_before):
            return False
        size = sum(value.nbytes for value in snapshot.view(learner).values() if isinstance(value, np.ndarray))
        self._not_before = (self._spent + size / self._speed) / self.checkpoint.share
        return seconds >= self._not_before

    def write(self, learner: Learner, memo: Memo) -> str | None:
        """Write a snapshot between two calls of the learner; say what the user should know, if it could not be written."""
        start = perf_counter()
        self._last, self._applied = memo.seconds, learner.applied
        state = snapshot.view(learner)
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
            arrayfile.write(path, KIND, VERSION, about, arrays)
            size = path.stat().st_size
            for name in [name for name in snapshots_in(self.folder) if name <= (self._epoch, self._number)][:-KEPT]:
                self._path(name).unlink(missing_ok=True)
        except OSError as error:
            return f"the snapshot {path} could not be written: {error}. The run goes on."
        finally:
            taken = perf_counter() - start
            self._spent += taken
        self._speed = max(size, 1) / max(taken, 1e-6)
        return None

    def _read(self, name: Name, settings: Settings) -> tuple[Learner, Memo]:
        about, arrays = arrayfile.read(self._path(name), KIND, (VERSION,))
        mine, theirs = self.checkpoint.run, about["run"]
        other = [what for what in sorted(mine.keys() | theirs.keys()) if mine.get(what) != theirs.get(what)]
        if not self.checkpoint.seeded:
            settings = replace(settings, seed=about["seed"])
        elif about["seed"] != settings.seed:
            other.append("random_state")
        if other:
            raise AnotherRun(f"{self.folder} holds snapshots of another run, which differs in {', '.join(other)}.")
        entries = json.loads(arrays.pop(HISTORY).tobytes())
        return snapshot.restore(settings, {**about["scalars"], **arrays}), Memo(entries, **about["memo"])

    def _path(self, name: Name) -> Path:
        return self.folder / f"snapshot-{name[0]:04d}-{name[1]:06d}"


class AnotherRun(RuntimeError):
    """The snapshots in a folder are another run's."""


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
