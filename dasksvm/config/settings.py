"""Operational settings: defaults of `dasksvm.yaml` under `dasksvm.*` in dask.config.

They are read when a run starts. In the environment: `DASK_DASKSVM__INFLIGHT_BYTES="256 MiB"`.
"""

import os
from functools import cache
from importlib.resources import files
from typing import Any


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

    # A `dask.config.set` that was entered before the defaults came takes them away again when it ends.
    return dask.config.get(f"dasksvm.{key}", default=_defaults()[key])


def bytes_of(key: str) -> int:
    """Read `dasksvm.<key>` as a number of bytes."""
    from dask.utils import parse_bytes

    return int(parse_bytes(get(key)))


def seconds_of(key: str) -> float:
    """Read `dasksvm.<key>` as a time."""
    from dask.utils import parse_timedelta

    return float(parse_timedelta(get(key)))


def threads() -> int:
    """Threads that compute tiles in this process: as set, or the CPUs it may use."""
    wanted = get("threads")
    return int(wanted) if wanted else len(os.sched_getaffinity(0))
