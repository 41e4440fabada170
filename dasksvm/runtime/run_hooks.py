"""What a run asks and tells beside its watcher: whether it should go on, and what the user should know."""

import logging
import warnings
from contextvars import ContextVar

logger = logging.getLogger("dasksvm")


class Attendant:
    """Attends the runs of a client: they end by their watcher only, and their warnings are Python's."""

    def heed(self, begun: bool) -> None:
        """Raise what should end the run: called while it waits, and, once it has begun, before every turn."""

    def note(self, text: str) -> None:
        """Tell of what the run has got over, or will."""
        logger.warning(text)

    def warn(self, text: str) -> None:
        """Tell of what the user should do something about."""
        warnings.warn(text, RuntimeWarning, stacklevel=5)


attendant: ContextVar[Attendant] = ContextVar("attendant", default=Attendant())  # noqa: B039 - it has no state
