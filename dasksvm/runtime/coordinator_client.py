"""A driver's line to the coordinator of its run: calls, signs of life, losses."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from threading import Lock
from time import monotonic
from typing import Any

from distributed import Client, Future
from distributed.client import FutureCancelledError
from distributed.protocol import to_serialize

from dasksvm import config
from dasksvm.runtime.cluster import TELL_AFTER, workers_of
from dasksvm.runtime.run_hooks import attendant

# One that is alive says so within this, whatever it computes.
SIGN_OF_LIFE = 10.0
# How often a driver that waits looks whether the coordinator is known to be lost.
LOOK = 1.0
# What a call to an actor raises when its worker is gone; what the run itself raises comes in a report.
LOST = (OSError, RuntimeError, TimeoutError, CancelledError, FutureCancelledError)


class CoordinatorLost(RuntimeError):
    """The worker that held the coordinator is gone, or gives no sign of life."""


class Silent(CoordinatorLost):
    """The coordinator gives no sign of life, but its worker may be there."""

    def __init__(self, address: str, started: bool) -> None:
        super().__init__(f"its worker {address} gives no sign of life" if started else f"{address} does not start it")
        self.address, self.started = address, started


class Arriving:
    """A coordinator on its way to this process: where its proxy is unpacked, it takes the current client for its own."""

    # Which client is current is a setting of Dask too, and those are the process's.
    _one_at_a_time = Lock()

    def __init__(self, client: Client, future: Future) -> None:
        self.client, self.future = client, future

    def result(self, timeout: float) -> Any:
        """Wait for it; TimeoutError if it does not come in time."""
        with self._one_at_a_time, self.client.as_current():
            return self.future.result(timeout=timeout)


class Line:
    """Waits for what a coordinator answers; one that computes for long still gives signs of life.

    Parameters
    ----------
    client : Client
    future : Future
        Of the actor.
    address : str
        Of its worker.
    """

    def __init__(self, client: Client, future: Future, address: str) -> None:
        self.client, self.future, self.address = client, future, address
        self.coordinator: Any = None

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method, and wait for what it gives."""
        return self.answer(lambda: self._call(method, arguments))

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method, by a future of our own: the proxy's never ends where one side cannot read what the other one wrote."""
        proxy = self.coordinator
        getattr(proxy, method)  # fails if the loss is known

        async def call() -> Any:
            args = [to_serialize(argument) for argument in arguments]
            try:
                rpc = proxy._worker_rpc
                answer = await rpc.actor_execute(actor=self.future.key, function=method, args=args, kwargs={})
                if answer["status"] != "OK":
                    raise answer["exception"]
            except TimeoutError as error:  # which would say that there is no answer yet
                raise ConnectionError(f"{method} timed out: {error}") from error
            return answer["result"]

        return asyncio.run_coroutine_threadsafe(call(), self.client.loop.asyncio_loop)

    def answer(self, asking: Callable[[], Any]) -> Any:
        """Ask, which fails at once if the loss is known, and wait."""
        patience = config.seconds_of("answer-timeout")
        began = monotonic()
        give_up = began + patience
        asked, told = None, False
        while True:
            try:
                if asked is None:
                    asked = asking()
                return asked.result(timeout=LOOK)
            except TimeoutError:
                pass
            except LOST as error:
                raise CoordinatorLost(f"{type(error).__name__}: {error}") from error
            attendant.get().heed(begun=False)
            # A call, and an actor that is not there yet, may wait for ever for a worker that is gone.
            if self.address not in workers_of(self.client) or self.future.status not in ("pending", "finished"):
                raise CoordinatorLost(f"its worker {self.address} is gone")
            if monotonic() > began + TELL_AFTER and not told:
                told = True
                if not self._lives():
                    attendant.get().note(
                        f"{self._silence()}; after {patience:g} s another begins (dasksvm.answer-timeout)"
                    )
            if monotonic() > give_up:
                if not self._lives():
                    raise Silent(self.address, self.coordinator is not None)
                give_up = monotonic() + patience

    def _silence(self) -> str:
        """Tell what is waited for where the coordinator gives no sign of life."""
        if self.coordinator is None:
            return f"waiting for {self.address} to start the coordinator of the run"
        return f"waiting for the coordinator of the run on {self.address}, which gives no sign of life"

    def _lives(self) -> bool:
        if self.coordinator is None:
            return False
        try:
            self.coordinator.status().result(timeout=SIGN_OF_LIFE)
        except LOST:
            return False
        return True
