"""Timings of a run."""

from dataclasses import dataclass


@dataclass
class Timings:
    """How a run spent its time, in seconds, and how much it sent.

    Attributes
    ----------
    seconds : float
        Wall-clock time of the whole run, measured by the driver.
    waiting, taking, submitting, keeping : float
        Time that the coordinator, or the main thread, spent waiting for batches, applying results, sending tasks and writing
        snapshots.
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
    pulling: float = 0.0
    reading: float = 0.0
    tiling: float = 0.0
    tasks: int = 0
    repeats: int = 0
    received: int = 0

    def summary(self) -> str:
        """Describe in one line what the run waited for."""
        share = self.waiting / self.seconds if self.seconds else 0.0
        work = f"reading {self.reading:.1f} s, kernel values {self.tiling:.1f} s"
        return f"waited            {share:.1%} of the time for batches; all workers together: {work}"
