"""Clients of the cluster: which one an estimator uses, and those that the command line opens."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, Security
from distributed.comm import connect

from dasksvm.runtime.cluster import local_cluster

# Errors that mean that the scheduler was not reached. distributed raises TypeError for tls:// without certificates.
UNREACHABLE = (OSError, RuntimeError, TypeError)


@contextmanager
def use_client(client: Any) -> Iterator[Client | None]:
    """Yield the client to use: the given one, a new one for an address, the current one if None is given, or None."""
    if isinstance(client, str):
        with _connect(client, set_as_default=False) as made:
            yield made
    elif client is not None:
        yield client
    else:
        try:
            yield Client.current()
        except ValueError:
            yield None


@contextmanager
def open_client(
    workers: int, scheduler: str | None, scheduler_file: str | None, timeout: float | None = None
) -> Iterator[Client | None]:
    """Open a client for the command line: of a running cluster, or of new workers on this machine; or yield None.

    Parameters
    ----------
    workers : int
        Number of compute workers to start if no scheduler is given; with 0 there is no cluster.
    scheduler, scheduler_file : str, optional
        Address of the scheduler of a running cluster, or a file that contains it.
    timeout : float, optional
        Seconds to wait for that scheduler; `distributed.comm.timeouts.connect` if not given.
    """
    if scheduler is not None or scheduler_file is not None:
        options: dict[str, Any] = {"scheduler_file": scheduler_file}
        if timeout is not None:
            _check_that_it_answers(scheduler or _address_in(str(scheduler_file)), timeout)
            options["timeout"] = timeout
        with _connect(scheduler, **options) as client:
            yield client
    elif workers:
        with local_cluster(workers) as cluster, _Client(cluster, direct_to_workers=True) as client:
            yield client
    else:
        yield None


class _Client(Client):  # type: ignore[misc]
    """A client that cleans up completely if its scheduler cannot be reached.

    A plain `Client` then keeps its event loop running, and the garbage collector may close it much later. If that happens while
    the same thread starts or stops the loop of another client, it deadlocks on a lock that the thread itself holds.
    """

    def start(self, **options: Any) -> None:
        """Connect to the scheduler."""
        try:
            super().start(**options)
        except BaseException:
            self.close()  # does nothing if Dask has closed the client, which leaves its loop running
            if self._loop_runner.is_started():
                self._loop_runner.stop()
            raise


def _connect(address: str | None, **options: Any) -> Client:
    try:
        return _Client(address, direct_to_workers=True, **options)
    except UNREACHABLE as error:
        raise ConnectionError(f"could not reach the scheduler: {error}") from error


def _check_that_it_answers(address: str, timeout: float) -> None:
    """Raise ConnectionError if no scheduler answers in time; a client would wait for a frozen scheduler for ever."""

    async def shake_hands() -> None:
        comm = await connect(address, timeout=timeout, **Security().get_connection_args("client"))
        comm.abort()

    try:
        asyncio.run(asyncio.wait_for(shake_hands(), timeout))
    except TimeoutError as error:
        raise ConnectionError(
            f"could not reach the scheduler: {address} did not answer within {timeout:g} s."
        ) from error
    except UNREACHABLE as error:
        raise ConnectionError(f"could not reach the scheduler: {error}") from error


def _address_in(scheduler_file: str) -> str:
    try:
        return str(json.loads(Path(scheduler_file).read_text())["address"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{scheduler_file} does not contain the address of a scheduler.") from error
