"""Operational settings: `dasksvm.*` in dask.config, with the defaults of `dasksvm.yaml`.

They are read when a run starts. To set one in the environment: `DASK_DASKSVM__INFLIGHT_BYTES="256 MiB"`.
"""

import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

# Where Linux tells the memory limit of a control group, in its versions 2 and 1.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@cache
def _defaults() -> dict[str, Any]:
    import dask.config
    import yaml

    defaults = yaml.safe_load(files("dasksvm.config").joinpath("dasksvm.yaml").read_text())
    dask.config.update_defaults(defaults)
    return dict(defaults["dasksvm"])


def get(key: str) -> Any:
    """Read `dasksvm.<key>`."""
    import dask.config

    # A `dask.config.set` block that was entered before the defaults were loaded removes them when it exits.
    return dask.config.get(f"dasksvm.{key}", default=_defaults()[key])


def bytes_of(key: str) -> int:
    """Read `dasksvm.<key>` as a number of bytes."""
    from dask.utils import parse_bytes

    return int(parse_bytes(get(key)))


def seconds_of(key: str) -> float:
    """Read `dasksvm.<key>` as a duration in seconds."""
    from dask.utils import parse_timedelta

    return float(parse_timedelta(get(key)))


def threads() -> int:
    """Return the number of threads that compute tiles in this process: the setting, or the CPUs that it may use."""
    configured = get("threads")
    return int(configured) if configured else len(os.sched_getaffinity(0))


def memory() -> int:
    """Return how many bytes of memory this process may use: those of the machine, or fewer where a control group limits them."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in LIMITS:
        try:
            found = min(found, int(path.read_text()))
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
    return found
