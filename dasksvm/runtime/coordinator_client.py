"""How a driver calls the coordinator of its run, and notices that it is lost."""

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
from dasksvm.runtime.cluster import LOG_AFTER, workers_of
from dasksvm.runtime.run_hooks import current_hooks

# A coordinator that is alive answers `status` within this many seconds, whatever it computes.
SIGN_OF_LIFE = 10.0
# Seconds between checks whether the coordinator is lost, while the driver waits for it.
CHECK_INTERVAL = 1.0
# What a call to an actor raises when its worker is gone. Errors of the run itself are sent in a report.
LOST = (OSError, RuntimeError, TimeoutError, CancelledError, FutureCancelledError)


class CoordinatorLost(RuntimeError):
    """The worker of the coordinator is gone, or gives no sign of life."""


class CoordinatorSilent(CoordinatorLost):
    """The coordinator gives no sign of life, although its worker may be alive."""

    def __init__(self, address: str, started: bool) -> None:
        super().__init__(
            f"its worker {address} gives no sign of life" if started else f"the worker {address} does not start it"
        )
        self.address, self.started = address, started


class ProxyFuture:
    """The proxy of a coordinator that is being started. A proxy uses the client that is current when it is unpickled."""

    # The current client is also stored in Dask's configuration, which is global to the process.
    _one_at_a_time = Lock()

    def __init__(self, client: Client, future: Future) -> None:
        self.client, self.future = client, future

    def result(self, timeout: float) -> Any:
        """Wait for the proxy; TimeoutError if it does not arrive in time."""
        with self._one_at_a_time, self.client.as_current():
            return self.future.result(timeout=timeout)


class CoordinatorClient:
    """Calls a coordinator and waits for its answers; one that computes for a long time still gives signs of life.

    Parameters
    ----------
    client : Client
    future : Future
        Future of the actor.
    address : str
        Address of its worker.

    Attributes
    ----------
    proxy : Actor or None
        Of the coordinator, once it has started.
    """

    def __init__(self, client: Client, future: Future, address: str) -> None:
        self.client, self.future, self.address = client, future, address
        self.proxy: Any = None

    def connect(self) -> None:
        """Wait until the coordinator has started."""
        self.proxy = self._wait_for(lambda: ProxyFuture(self.client, self.future))

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and wait for its result."""
        return self._wait_for(lambda: self._send(method, arguments))

    def _send(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method without the proxy's own future, which never completes if one side cannot deserialize a message."""
        proxy = self.proxy
        getattr(proxy, method)  # fails if the coordinator is known to be lost

        async def call() -> Any:
            args = [to_serialize(argument) for argument in arguments]
            try:
                rpc = proxy._worker_rpc
                answer = await rpc.actor_execute(actor=self.future.key, function=method, args=args, kwargs={})
                if answer["status"] != "OK":
                    raise answer["exception"]
            except TimeoutError as error:  # a TimeoutError would mean that there is no answer yet
                raise ConnectionError(f"{method} timed out: {error}") from error
            return answer["result"]

        return asyncio.run_coroutine_threadsafe(call(), self.client.loop.asyncio_loop)

    def _wait_for(self, begin_call: Callable[[], Any]) -> Any:
        """Make a call and wait for its result; CoordinatorLost if the coordinator is lost."""
        timeout = config.seconds_of("answer-timeout")
        began = monotonic()
        give_up = began + timeout
        call, logged = None, False
        while True:
            try:
                if call is None:
                    call = begin_call()
                return call.result(timeout=CHECK_INTERVAL)
            except TimeoutError:
                pass
            except LOST as error:
                raise CoordinatorLost(f"{type(error).__name__}: {error}") from error
            current_hooks.get().raise_if_cancelled(begun=False)
            # Without this check, a call to a worker that is gone, or the start of an actor there, could wait for ever.
            if self.address not in workers_of(self.client) or self.future.status not in ("pending", "finished"):
                raise CoordinatorLost(f"its worker {self.address} is gone")
            if monotonic() > began + LOG_AFTER and not logged:
                logged = True
                if not self._is_alive():
                    current_hooks.get().note(
                        f"{self._describe_wait()}; after {timeout:g} s it is replaced (dasksvm.answer-timeout)"
                    )
            if monotonic() > give_up:
                if not self._is_alive():
                    raise CoordinatorSilent(self.address, self.proxy is not None)
                give_up = monotonic() + timeout

    def _describe_wait(self) -> str:
        """Describe what the driver waits for when the coordinator gives no sign of life."""
        if self.proxy is None:
            return f"waiting for {self.address} to start the coordinator of the run"
        return f"waiting for the coordinator of the run on {self.address}, which gives no sign of life"

    def _is_alive(self) -> bool:
        if self.proxy is None:
            return False
        try:
            self.proxy.status().result(timeout=SIGN_OF_LIFE)
        except LOST:
            return False
        return True
