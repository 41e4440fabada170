"""Timings of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from dasksvm.solver.messages import TimedPart

# How the parts are named in summaries.
PARTS: dict[TimedPart, str] = {
    "updating": "candidates",
    "storing": "kept values",
    "squaring": "squares",
    "solving": "steps",
    "shifting": "gradients",
    "verifying": "gradients in float64",
}


@dataclass
class Timings:
    """How a run spent its time, in seconds, and how much it sent.

    The main thread waits, takes, submits and keeps; the rest of `seconds` goes into callbacks and the like. For training in
    blocks, the times from `updating` to `verifying` are the largest parts of taking and submitting. Pulling, reading and tiling
    happen on other threads at the same time.

    Attributes
    ----------
    seconds : float
        Wall-clock time of the whole run, measured by the driver.
    waiting, taking, submitting, keeping : float
        Time that the coordinator, or the main thread, spent waiting for batches, applying results, making plans and sending
        tasks, and writing snapshots.
    updating, storing, squaring, solving, shifting, verifying : float
        Time spent bringing the decision values of candidates up to date, keeping the kernel values of new members, gathering or
        computing those among working sets, making steps in them, moving gradients, and recomputing them in float64.
    pulling, reading, tiling : float
        Time that all workers or threads together spent waiting for members, reading rows and computing tiles.
    tasks, repeats : int
        Tasks sent, and how many of them requested a batch again.
    received : int
        Bytes of kernel rows and features that the coordinator received.
    """

    seconds: float = 0.0
    waiting: float = 0.0
    taking: float = 0.0
    submitting: float = 0.0
    keeping: float = 0.0
    updating: float = 0.0
    storing: float = 0.0
    squaring: float = 0.0
    solving: float = 0.0
    shifting: float = 0.0
    verifying: float = 0.0
    pulling: float = 0.0
    reading: float = 0.0
    tiling: float = 0.0
    tasks: int = 0
    repeats: int = 0
    received: int = 0

    def summary(self) -> str:
        """Describe what the run waited for, and where training in blocks spent its time."""
        share = self.waiting / self.seconds if self.seconds else 0.0
        work = f"reading {self.reading:.1f} s, kernel values {self.tiling:.1f} s"
        line = f"waited            {share:.1%} of the time for batches; all workers together: {work}"
        parts = [f"{text} {getattr(self, part):.1f} s" for part, text in PARTS.items() if getattr(self, part)]
        return line + (f"\nin blocks         {', '.join(parts)}" if parts else "")


class PartTimer:
    """Measures the parts of applying results, for the thread that applies them.

    A part that begins within another interrupts it, so that no time counts twice.

    Parameters
    ----------
    timings : Timings
        The time is added to it.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._running: list[TimedPart] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, part: TimedPart) -> Iterator[None]:
        """Measure a part until the context ends."""
        self._switch()
        self._running.append(part)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def _switch(self) -> None:
        """Add the time since the last switch to the part that was running."""
        now = perf_counter()
        if self._running:
            name = self._running[-1]
            setattr(self._timings, name, getattr(self._timings, name) + now - self._since)
        self._since = now
