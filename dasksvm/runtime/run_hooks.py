"""What a run calls while it goes on: to learn whether it should end, and to report problems. A job has hooks of its own."""

import logging
import warnings
from contextvars import ContextVar

logger = logging.getLogger("dasksvm")


class RunHooks:
    """The hooks of a client's own runs: nothing but a watcher ends them, and warnings are Python warnings."""

    def raise_if_cancelled(self, begun: bool) -> None:
        """Raise an error if the run should end; called while it waits and, once it has begun, before every turn."""

    def note(self, text: str) -> None:
        """Report a problem that the run handles by itself."""
        logger.warning(text)

    def warn(self, text: str) -> None:
        """Report a problem that the user should act on."""
        warnings.warn(text, RuntimeWarning, stacklevel=5)


# The hooks of the runs of this thread.
current_hooks: ContextVar[RunHooks] = ContextVar("current_hooks", default=RunHooks())  # noqa: B039 - it has no state
