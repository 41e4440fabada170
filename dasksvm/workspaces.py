"""The memory that a thread uses again from tile to tile, for as long as it lives."""

from threading import local

from dasksvm.solver.memory import Workspace

_own = local()


def of_this_thread() -> Workspace:
    """Give this thread's workspace."""
    if not hasattr(_own, "workspace"):
        _own.workspace = Workspace()
    workspace: Workspace = _own.workspace
    return workspace
