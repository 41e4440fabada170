"""The memory that a thread uses again from tile to tile."""

from threading import local

from dasksvm.solver.memory import Workspace


class Workspaces:
    """A workspace for each thread that asks, for as long as the thread and this live."""

    def __init__(self) -> None:
        self._own = local()

    def mine(self) -> Workspace:
        """Give this thread's workspace."""
        if not hasattr(self._own, "workspace"):
            self._own.workspace = Workspace()
        workspace: Workspace = self._own.workspace
        return workspace


# Of the threads that compute decision values, which outlive a call.
of_this_thread = Workspaces().mine
