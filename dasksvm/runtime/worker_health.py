"""Checks that the compute workers are alive while a run waits for a batch."""

from time import monotonic

from distributed import Client

from dasksvm import config
from dasksvm.runtime.cluster import TELL_AFTER, WorkersLost, workers_of
from dasksvm.runtime.placement import tile_workers
from dasksvm.runtime.run_hooks import attendant

# Seconds between checks of the workers while no batch arrives.
LOOK = 1.0
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
        self._patience = config.seconds_of("worker-timeout")
        self._since: float | None = None
        self._look_at = self._sign = 0.0
        self._heartbeats: dict[str, float] = {}
        self._told: set[str] = set()

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
            self._since = None
            return
        if self._since is None:
            self._since = self._sign = now
            self._look_at = now + LOOK
            self._heartbeats = {}
            self._told = set()
        if now < self._look_at:
            return
        self._look_at = now + LOOK
        workers = workers_of(self.client)
        now = monotonic()
        heartbeats = {address: workers[address]["last_seen"] for address in tile_workers(workers, self.coordinator)}
        if any(self._heartbeats.get(address) != seen for address, seen in heartbeats.items()):
            self._sign = now
        self._heartbeats = heartbeats
        silent, count = now - self._sign, len(heartbeats)
        if not heartbeats:
            self._tell("there are no compute workers left")
        elif silent > TELL_AFTER:
            self._tell(f"the compute workers ({count}) give no sign of life: they are frozen or unreachable")
        elif now - self._since > SLOW:
            self._tell(f"no batch has arrived for {SLOW:g} s, although the compute workers ({count}) are alive")
        if silent > self._patience:
            what = f"the compute workers ({count}) gave no sign of life" if count else "there were no compute workers"
            raise WorkersLost(f"{what} for {self._patience:g} s (dasksvm.worker-timeout).")

    def _tell(self, text: str) -> None:
        """Log why the run waits, once for each reason."""
        if text not in self._told:
            self._told.add(text)
            attendant.get().note(f"run {self.run} is waiting: {text}")
