"""Whether the workers for tiles are alive, while a run waits for a batch."""

from time import monotonic

from distributed import Client

from dasksvm import config
from dasksvm.runtime.cluster import TELL_AFTER, WorkersLost, workers_of
from dasksvm.runtime.placement import tile_workers
from dasksvm.runtime.run_hooks import attendant

# Seconds between two looks at the workers while nothing new comes.
LOOK = 1.0
# A run whose workers are alive is told of after so many seconds without a batch: some compile first.
SLOW = 20.0


class TileWorkers:
    """Watches the workers for tiles of a run, which is told when they are gone or frozen, and ends when they stay so.

    A sign of life is a heartbeat that the scheduler has had from one of them, or that one is new.

    Parameters
    ----------
    client : Client
    run : str
    coordinator : str
        Address of its worker.
    """

    def __init__(self, client: Client, run: str, coordinator: str) -> None:
        self.client, self.run, self.coordinator = client, run, coordinator
        self._patience = config.seconds_of("worker-timeout")
        self._since: float | None = None
        self._look_at = self._sign = 0.0
        self._heartbeats: dict[str, float] = {}
        self._told: set[str] = set()

    def watch(self, waiting: bool) -> None:
        """Look at the workers if the run waits for a batch, about once a second; called after each turn.

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
            self._tell("no worker for tiles is left")
        elif silent > TELL_AFTER:
            self._tell(f"the workers for tiles ({count}) give no sign of life: they are frozen or cut off")
        elif now - self._since > SLOW:
            self._tell(f"no batch has come for {SLOW:g} s, though the workers for tiles ({count}) are alive")
        if silent > self._patience:
            what = f"the workers for tiles ({count}) gave no sign of life" if count else "there was no worker for tiles"
            raise WorkersLost(f"{what} for {self._patience:g} s (dasksvm.worker-timeout).")

    def _tell(self, text: str) -> None:
        """Tell the user why the run waits, once for each reason."""
        if text not in self._told:
            self._told.add(text)
            attendant.get().note(f"run {self.run} waits: {text}")
