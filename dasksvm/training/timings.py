"""Where the time of a run went."""

from dataclasses import dataclass


@dataclass
class Timings:
    """Where the time of a run went, in seconds, and what it moved.

    Attributes
    ----------
    seconds : float
        Of the whole run, as the driver sees it.
    waiting, taking, submitting, keeping : float
        Of the coordinator, or of the main thread: without a batch to apply, applying results, sending tasks, writing snapshots.
    pulling, reading, tiling : float
        Of the workers or threads, all together: waiting for members, reading rows, computing tiles.
    tasks, repeats : int
        Tasks sent; those among them that were sent for a batch that had been asked for before.
    received : int
        Bytes of kernel rows and features that came to the coordinator.
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

    def told(self) -> str:
        """Say what the run waited for."""
        share = self.waiting / self.seconds if self.seconds else 0.0
        work = f"reading {self.reading:.1f} s, tiles {self.tiling:.1f} s"
        return f"waited            {share:.1%} of the time for batches; the workers together: {work}"
