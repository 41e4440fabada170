"""The clock of a discrete-event model: processes that wait for events, cores that they share, and resources used in turn.

A process is a generator that yields the events that it waits for.
"""

import heapq
from collections.abc import Callable, Generator
from functools import partial
from itertools import count

Process = Generator["Event", None, None]


class Event:
    """Something that happens once, and that processes wait for."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


class Clock:
    """Runs processes in the order of simulated time; of what happens at the same time, what was planned first comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        heapq.heappush(self._agenda, (time, next(self._numbers), action))

    def after(self, seconds: float) -> Event:
        """Return an event that happens after some seconds."""
        event = Event()
        self.at(self.now + seconds, partial(self.fire, event))
        return event

    def fire(self, event: Event) -> None:
        """Let an event happen, and those that wait for it continue."""
        event.happened = True
        for process in event.waiting:
            self.start(process)
        event.waiting.clear()

    def start(self, process: Process) -> None:
        """Begin or continue a process at the present time."""
        self.at(self.now, partial(self._advance, process))

    def _advance(self, process: Process) -> None:
        event = next(process, None)
        if event is None:
            return
        if event.happened:
            self.start(process)
        else:
            event.waiting.append(process)

    def run(self) -> None:
        """Run until nothing more is planned."""
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()


class Cores:
    """The cores of a machine, which its busy threads share evenly.

    Parameters
    ----------
    clock : Clock
    number : float
    crowding : float
        How many times as long a thread takes on a core of its own while other cores are busy.
    """

    def __init__(self, clock: Clock, number: float, crowding: float = 1.0) -> None:
        self._clock, self._number, self._crowding = clock, number, crowding
        # Jobs by the progress at which they end. As all of them progress at the same rate, one number serves for all.
        self._jobs: list[tuple[float, int, Event]] = []
        self._progress = self._since = 0.0
        self._numbers, self._version = count(), 0
        self.delivered = 0.0

    def work(self, seconds: float) -> Event:
        """Begin a job that takes some seconds of a thread that is alone; return the event of its end."""
        self._catch_up()
        done = Event()
        heapq.heappush(self._jobs, (self._progress + seconds, next(self._numbers), done))
        self._plan_next_end()
        return done

    def _rate(self) -> float:
        busy = len(self._jobs)
        return min(1.0, self._number / busy) / (self._crowding if min(busy, self._number) > 1 else 1.0)

    def _catch_up(self) -> None:
        """Let the jobs progress to the present time."""
        if self._jobs:
            progress = (self._clock.now - self._since) * self._rate()
            self._progress += progress
            self.delivered += progress * len(self._jobs)
        self._since = self._clock.now

    def _plan_next_end(self) -> None:
        self._version += 1
        if self._jobs:
            left = max(self._jobs[0][0] - self._progress, 0.0) / self._rate()
            self._clock.at(self._clock.now + left, partial(self._end_first, self._version))

    def _end_first(self, version: int) -> None:
        """End the job that ends first, unless other jobs have begun since this was planned."""
        if version == self._version:
            self._catch_up()
            self._clock.fire(heapq.heappop(self._jobs)[2])
            self._plan_next_end()


class Turns:
    """A resource that serves one after the other, such as a link or a loop that handles messages."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._free = clock, 0.0

    def use(self, seconds: float) -> Event:
        """Wait in line and use the resource; return the event of the end."""
        self._free = max(self._clock.now, self._free) + seconds
        return self._clock.after(self._free - self._clock.now)
