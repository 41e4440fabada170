"""The attendant of a run: whether the run should continue, and where its messages to the user go."""

import logging
import warnings
from contextvars import ContextVar

logger = logging.getLogger("dasksvm")


class Attendant:
    """The attendant of a client's runs: only the watcher can end them, and warnings are Python warnings."""

    def heed(self, begun: bool) -> None:
        """Raise an error if the run should end; called while it waits and, once it has begun, before every turn."""

    def note(self, text: str) -> None:
        """Report a problem that the run handles by itself."""
        logger.warning(text)

    def warn(self, text: str) -> None:
        """Report a problem that the user should act on."""
        warnings.warn(text, RuntimeWarning, stacklevel=5)


attendant: ContextVar[Attendant] = ContextVar("attendant", default=Attendant())  # noqa: B039 - it has no state
