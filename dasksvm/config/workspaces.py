"""Buffers that a thread reuses from one tile to the next."""

from threading import local

from dasksvm.solver.memory import Workspace


class Workspaces:
    """One workspace per thread, created on first use."""

    def __init__(self) -> None:
        self._own = local()

    def of_this_thread(self) -> Workspace:
        """Return the workspace of the calling thread."""
        if not hasattr(self._own, "workspace"):
            self._own.workspace = Workspace()
        workspace: Workspace = self._own.workspace
        return workspace


# For the threads that compute decision values: they outlive a single call, and so does this.
of_this_thread = Workspaces().of_this_thread
