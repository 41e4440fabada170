"""Checks that the compute workers are alive while a run waits for a batch."""

from time import monotonic

from distributed import Client

from dasksvm import config
from dasksvm.runtime.cluster import LOG_AFTER, WorkersLost, workers_of
from dasksvm.runtime.placement import tile_workers
from dasksvm.runtime.run_hooks import current_hooks

# Seconds between checks of the workers while no batch arrives.
CHECK_INTERVAL = 1.0
# Seconds without a batch after which a run whose workers are alive logs that it waits: workers may have to compile first.
SLOW = 20.0


class TileWorkers:
    """Watches the compute workers of a run: logs when they are gone or frozen, and ends the run if they stay so.

    A sign of life is a heartbeat that the scheduler has received from one of them, or a new worker.

    Parameters
    ----------
    client : Client
    run : str
    coordinator : str
        Address of the coordinator's worker.
    """

    def __init__(self, client: Client, run: str, coordinator: str) -> None:
        self.client, self.run, self.coordinator = client, run, coordinator
        self._timeout = config.seconds_of("worker-timeout")
        self._waiting_since: float | None = None
        self._next_check = self._last_sign_of_life = 0.0
        self._heartbeats: dict[str, float] = {}
        self._logged: set[str] = set()

    def watch(self, waiting: bool) -> None:
        """Check the workers about once a second while the run waits for a batch; called after each turn.

        Raises
        ------
        WorkersLost
            When the run has waited for `dasksvm.worker-timeout` without a sign of life.
        SchedulerLost
            If the scheduler does not answer.
        """
        now = monotonic()
        if not waiting:
            self._waiting_since = None
            return
        if self._waiting_since is None:
            self._waiting_since = self._last_sign_of_life = now
            self._next_check = now + CHECK_INTERVAL
            self._heartbeats = {}
            self._logged = set()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_INTERVAL
        workers = workers_of(self.client)
        now = monotonic()
        heartbeats = {address: workers[address]["last_seen"] for address in tile_workers(workers, self.coordinator)}
        if any(self._heartbeats.get(address) != seen for address, seen in heartbeats.items()):
            self._last_sign_of_life = now
        self._heartbeats = heartbeats
        silent, count = now - self._last_sign_of_life, len(heartbeats)
        if not heartbeats:
            self._log_once("there are no compute workers left")
        elif silent > LOG_AFTER:
            self._log_once(f"the compute workers ({count}) give no sign of life: they are frozen or unreachable")
        elif now - self._waiting_since > SLOW:
            self._log_once(f"no batch has arrived for {SLOW:g} s, although the compute workers ({count}) are alive")
        if silent > self._timeout:
            what = f"the compute workers ({count}) gave no sign of life" if count else "there were no compute workers"
            raise WorkersLost(f"{what} for {self._timeout:g} s (dasksvm.worker-timeout).")

    def _log_once(self, text: str) -> None:
        """Log why the run waits, once for each reason."""
        if text not in self._logged:
            self._logged.add(text)
            current_hooks.get().note(f"run {self.run} is waiting: {text}")
