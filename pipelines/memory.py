"""Samples the memory of all processes of a run."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

PERIOD = 0.5


def resident_by_process() -> dict[int, float]:
    """Return the resident memory of this process and all its descendants, in MB, by pid."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line)
        except OSError:
            continue
        children.setdefault(int(status["PPid"]), []).append(int(entry.name))
        sizes[int(entry.name)] = int(status.get("VmRSS", "0 kB").split()[0]) / 1024
    found, queue = {}, [os.getpid()]
    while queue:
        pid = queue.pop()
        found[pid] = sizes.get(pid, 0.0)
        queue += children.get(pid, [])
    return found


class Sampler:
    """Sample memory, and optionally other values, in a thread.

    Parameters
    ----------
    also : callable, optional
        Gives more fields of each sample.
    """

    def __init__(self, also: Callable[[], dict[str, Any]] | None = None) -> None:
        self.samples: list[dict[str, Any]] = []
        self._also = also
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(PERIOD):
            sizes = sorted(resident_by_process().values(), reverse=True)
            sample = {"seconds": time.perf_counter() - self._start, "mb": sum(sizes), "largest_mb": sizes[0]}
            self.samples.append(sample | (self._also() if self._also else {}))

    @property
    def peak(self) -> float:
        """The largest sum over all processes, in MB."""
        return max((sample["mb"] for sample in self.samples), default=0.0)
