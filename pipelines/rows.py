"""Measurements as JSON rows: what ran, where, and its cost."""

import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

PACKAGES = ("dasksvm", "numpy", "scipy", "numba", "scikit-learn", "scikit-learn-intelex", "dask")


def environment() -> dict[str, Any]:
    """Describe commit, versions and machine."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    blas = sorted({f"{entry['internal_api']} {entry.get('architecture', '')}" for entry in threadpool_info()})
    return {
        "commit": commit.stdout.strip() or None,
        "versions": versions,
        "python": platform.python_version(),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "blas": blas,
        "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE"),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Call a function; return its result, its wall and CPU time, and the peak memory of the process so far."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = work()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result, {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": after.ru_maxrss / 1024}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
