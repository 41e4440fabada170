"""A batch on its way through S, and the kernel rows of those who enter.

The row of a candidate is assembled in pages of the cache, from the tile, from the values against the members that came
since, and from its mates; if the candidate enters S, the pages are its cached row.
"""

from typing import Any, NamedTuple

from dasksvm.solver.cache import EVENTS, PAGE, link_newest, spare_page
from dasksvm.solver.directions import weighted_sum
from dasksvm.solver.jit import njit

# Fields of Batch.at
CANDIDATE, STAGE, PROBLEM, REPEAT, FIRST_EVENT, MISSING, STEPS, SEEN, PLACE, ENTERED = range(10)


class Batch(NamedTuple):
    """A batch of m examples, K of them with kernel rows, scored against V places, of which F places changed since.

    Attributes
    ----------
    rows : ndarray of shape (K, V)
        Kernel rows against the places of the version the batch was scored against.
    fresh, fresh_places : ndarray of shape (K, F) and (F,)
        Kernel values against the members that came since, and their places.
    mates : ndarray of shape (K, K)
        Kernel values among the candidates.
    row_of : ndarray of int64, shape (m,)
        Row of each example; -1 where it was filtered.
    known, known_slot : ndarray of int64, shape (m,)
        Place and slot of the example if it was a member when the batch came, else -1.
    sign, bound : ndarray of shape (P, m)
        Label ±1 and C_i.
    self_kernel : ndarray of float64, shape (K,)
        K(x, x).
    scored, drift : ndarray of float64, shape (P, K)
        How far each candidate violated when it was scored; how much more it does now (written).
    margin : ndarray of float64, shape (P, K)
        The label times the decision value of each candidate when it was processed; nan where it was not (written).
    gradient, enters : ndarray of shape (P,)
        Of the candidate at hand (written).
    hand : ndarray of int32, shape (B,)
        Pages of the row of the candidate at hand, -1 where it has none.
    event_row : ndarray of int64, shape (K,)
        Candidate row of each insertion of this batch.
    at : ndarray of int64, shape (10,)
        Where the batch stands.
    """

    rows: Any
    fresh: Any
    fresh_places: Any
    mates: Any
    row_of: Any
    known: Any
    known_slot: Any
    sign: Any
    bound: Any
    self_kernel: Any
    scored: Any
    drift: Any
    margin: Any
    gradient: Any
    enters: Any
    hand: Any
    event_row: Any
    at: Any


@njit()
def assemble(w: Any, cache: Any, batch: Any, k: int) -> None:  # pragma: no cover
    """Complete a candidate's row to the present places, in the pages at hand."""
    pages, hand = cache.pages, batch.hand
    for block in range(-(-(w.size[0] + 1) // PAGE)):
        if hand[block] < 0:
            hand[block] = spare_page(cache)
    width = batch.rows.shape[1]
    row = batch.rows[k]
    for start in range(0, width, PAGE):
        part = row[start : min(start + PAGE, width)]
        pages[hand[start // PAGE]][: len(part)] = part
    for f in range(len(batch.fresh_places)):
        place = batch.fresh_places[f]
        pages[hand[place // PAGE], place % PAGE] = batch.fresh[k, f]
    first = batch.at[FIRST_EVENT]
    for e in range(first, cache.size[EVENTS]):
        place = cache.event_place[e]
        if cache.event_of[place] == e:
            pages[hand[place // PAGE], place % PAGE] = batch.mates[k, batch.event_row[e - first]]


@njit()
def decision(w: Any, cache: Any, batch: Any, p: int) -> float:  # pragma: no cover
    """Σ α_s K_s for the candidate at hand."""
    alpha = w.alpha[p]
    total = 0.0
    places = w.size[0]
    for start in range(0, places, PAGE):
        weights = alpha[start : min(start + PAGE, places)]
        total += weighted_sum(weights, cache.pages[batch.hand[start // PAGE]])
    return total


@njit()
def keep(cache: Any, batch: Any, k: int, place: int) -> None:  # pragma: no cover
    """Give the row at hand to a new member."""
    event = cache.size[EVENTS]
    batch.event_row[event - batch.at[FIRST_EVENT]] = k
    cache.event_place[event], cache.event_of[place] = place, event
    cache.size[EVENTS] = event + 1
    cache.table[place, :] = batch.hand
    batch.hand[:] = -1
    cache.pages[cache.table[place, place // PAGE], place % PAGE] = batch.self_kernel[k]
    cache.applied[place] = event + 1
    link_newest(cache, place)


@njit()
def complete_new(cache: Any, batch: Any) -> None:  # pragma: no cover
    """Complete the rows of those who entered in this batch by what they lack of each other."""
    first, events = batch.at[FIRST_EVENT], cache.size[EVENTS]
    for event in range(first, events):
        place = cache.event_place[event]
        if cache.event_of[place] != event or cache.applied[place] < 0:
            continue
        pages, mates = cache.table[place], batch.mates[batch.event_row[event - first]]
        for e in range(cache.applied[place], events):
            target = cache.event_place[e]
            if cache.event_of[target] == e:
                cache.pages[pages[target // PAGE], target % PAGE] = mates[batch.event_row[e - first]]
        cache.applied[place] = events


@njit()
def release(cache: Any, batch: Any) -> None:  # pragma: no cover
    """End a batch: give the pages at hand back."""
    for block in range(len(batch.hand)):
        if batch.hand[block] >= 0:
            cache.free[cache.size[0]] = batch.hand[block]
            cache.size[0] += 1
            batch.hand[block] = -1
