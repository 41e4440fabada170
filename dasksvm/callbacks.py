"""Events of a run made visible, or acted upon: history, progress, time budget.

A watcher is called with the progress and the seconds since the start after every result that the learner takes; when it
returns True the run is asked to stop.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from dasksvm.solver.messages import Progress

Watcher = Callable[[Progress, float], bool]


class History:
    """Collect the entries of `history_`."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Add an entry."""
        self.entries.append(progress.as_dict() | {"seconds": seconds})
        return False


class TimeBudget:
    """Ask the run to stop after so many seconds; finishing follows.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._asked = False

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Tell once whether the time is over."""
        over = seconds >= self.seconds and not self._asked and progress.phase in ("seeding", "online")
        self._asked |= over
        return over


class ProgressLines:
    """Show a run: a bar that is drawn over on a terminal, a line a second elsewhere.

    Parameters
    ----------
    total : int
        Examples of an epoch.
    stream : text file, optional
        Standard error if not given.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = sys.stderr if stream is None else stream
        self._last = -float("inf")

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Show the progress, if the last time is long enough ago, and the end."""
        live = self.stream.isatty()
        now = time.monotonic()
        if now - self._last >= (0.1 if live else 1.0) or progress.phase == "done":
            self._last = now
            self.stream.write(
                f"\r\x1b[K{self.line(progress, seconds)}" if live else f"{self.line(progress, seconds)}\n"
            )
            self.stream.flush()
        return False

    def line(self, progress: Progress, seconds: float) -> str:
        """Describe a moment of the run."""
        within = progress.seen - progress.epoch * self.total if progress.phase == "online" else self.total
        share = min(max(within / max(self.total, 1), 0.0), 1.0)
        bar = "█" * round(20 * share) + "░" * (20 - round(20 * share))
        speed = progress.seen / seconds if seconds > 0 else 0.0
        return (
            f"{progress.phase:9} {bar} epoch {progress.epoch + 1}  {progress.seen:,} seen  {progress.members:,} members  "
            f"δ {float(progress.delta.max()):.3g}  {speed:,.0f} rows/s  {seconds:.1f} s"
        )

    def close(self) -> None:
        """End the line of a terminal."""
        if self.stream.isatty():
            self.stream.write("\n")


class Together:
    """Call several watchers; the run stops when one of them says so.

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
