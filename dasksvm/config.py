"""Operational settings: defaults of `dasksvm.yaml` under `dasksvm.*` in dask.config.

They are read when a run starts. In the environment: `DASK_DASKSVM__INFLIGHT_BYTES="256 MiB"`.
"""

import os
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _register() -> None:
    import dask.config
    import yaml

    defaults = yaml.safe_load(files("dasksvm").joinpath("dasksvm.yaml").read_text())
    dask.config.update_defaults(defaults)


def get(key: str) -> Any:
    """Read `dasksvm.<key>`."""
    import dask.config

    _register()
    return dask.config.get(f"dasksvm.{key}")


def inflight_bytes() -> int:
    """Bytes that the batches in flight may take."""
    from dask.utils import parse_bytes

    return int(parse_bytes(get("inflight-bytes")))


def threads() -> int:
    """Threads that compute tiles in this process: as set, or the CPUs it may use."""
    wanted = get("threads")
    return int(wanted) if wanted else len(os.sched_getaffinity(0))
