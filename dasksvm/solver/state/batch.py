"""The processing of one batch of candidates.

While a batch is processed, its candidates use *seats*: temporary places of the working arrays, after the places of S. Their
kernel values are kept outside the row cache: `rows` (candidates × places) and its transpose `columns` hold the kernel values
between candidates and S, and `mutual` holds those among the candidates. None of these arrays changes while the batch is
processed, so that several problems can be solved in parallel. At the end, each candidate that is a member of some problem moves
to a place of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Features, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch
from dasksvm.solver.state.direction_search import weighted_sum
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import (
    CLOCK,
    PAGE,
    RowCache,
    blocks_of,
    cache_new_rows,
    drop_stale,
    extend_rows,
    update_use_order,
    write_columns,
)

# Fields of Batch.progress
CANDIDATE, STAGE, REPEAT, MISSING, STEPS, SEEN, PLACE, ENTERED, FIELDS = range(9)
# Reasons why the processing of a batch returns.
DONE, ROW_MISSING, FULL = 0, 1, 2
# Rows are dropped if they were not used while STALE times as many members entered as there are places.
STALE = 1
# Smallest share of the work that is worth a second thread: lines to transpose, rows to extend by columns, rows to sum.
SHARED_LINES, SHARED_ROWS, SHARED_SUMS = 1024, 1000, 64
# Places whose columns are written together.
LINES = 16


class Batch(NamedTuple):
    """A batch of m examples, K of them with kernel rows, against V places.

    Attributes
    ----------
    rows, columns : ndarray of shape (K, V) and (V, K)
        Kernel values of the candidates with the places in use.
    mutual : ndarray of shape (K, K)
        Kernel values among the candidates.
    base : int
        The first seat, at the start of a block.
    row_of : ndarray of int64, shape (m,)
        Candidate number of each example; -1 for examples that are not candidates.
    chosen : ndarray of int64, shape (K,)
        Rows of the result that belong to the candidates; the other examples are members already or cannot enter.
    place_of : ndarray of int64, shape (m,)
        Place of the example if it is a member, else -1.
    codes, sign, bound : ndarray of shape (m,), (P, m) and (P, m)
        See `Targets`.
    excess : ndarray of float64, shape (P, rows of the result)
        Violation of each row when the result was applied.
    growth : ndarray of float64, shape (P, K)
        By how much the violation of each candidate had grown when it was processed (output); nan for those not processed.
    progress : ndarray of int64, shape (P, FIELDS)
        How far the batch is processed in each problem.
    """

    rows: Floats
    columns: Floats
    mutual: Floats
    base: int
    row_of: Ints
    chosen: Ints
    place_of: Ints
    codes: Ints
    sign: Values
    bound: Values
    excess: Values
    growth: Values
    progress: Ints


def make_batch(expansion: Expansion, result: CandidateBatch, arrivals: Ints, place_of: Ints) -> Batch:
    """Bring a scored batch up to date with the current members, so that it can be processed.

    `arrivals` are `Expansion.arrivals()` at the version that the batch was scored against; `place_of` are the places of its
    examples (-1 for those that are not members).
    """
    w = expansion.working
    changed = np.flatnonzero(expansion.arrival[: len(arrivals)] != arrivals)
    changed = np.concatenate([changed, np.arange(len(arrivals), expansion.places)])
    changed = changed[w.holders[changed] > 0]
    fresh = np.empty((len(result.rows), len(changed)), result.rows.dtype)
    members = expansion.members().take(w.slot[changed], expansion.workspace)
    expansion.in_halves(
        lambda part: _fill(expansion.kernel, result.features.part(*part), members, fresh[slice(*part)]),
        len(fresh),
        SHARED_SUMS,
    )
    at = np.flatnonzero(result.row_of >= 0)
    excess, state = expansion.violations_and_state(result, at, _sums(expansion, result, arrivals, changed, fresh))
    excess[result.bound[:, at] <= 0] = np.nan
    able = ~expansion.is_member(place_of[at]) & (excess > -np.inf)
    chosen = np.flatnonzero(able.any(axis=0))
    count, problems, dtype = len(chosen), len(excess), result.rows.dtype
    if count > PAGE:
        raise ValueError(f"a batch has {count} candidates, at most {PAGE} can be processed together")
    candidates = result.features.take(chosen)
    mutual = expansion.kernel.tile(candidates, candidates)
    expansion.evaluations += fresh.size + mutual.size
    rows = expansion.workspace.array("rows", (count, expansion.places), dtype)
    columns = expansion.workspace.array("columns", (expansion.places, count), dtype)
    expansion.in_halves(
        lambda part: fill_rows(result.rows, fresh, changed, chosen, rows, columns, *part),
        expansion.places,
        SHARED_LINES,
    )
    base = blocks_of(expansion.places) * PAGE
    w.diagonal[base : base + count] = expansion.kernel.diagonal(candidates)
    expansion.fill_seats(base, state[:, chosen])
    np.fill_diagonal(mutual, w.diagonal[base : base + count])
    row_of = np.full(len(place_of), -1, np.int64)
    row_of[at[chosen]] = np.arange(count)
    # The copies are C-contiguous and writable, whichever executor the result is from: numba would otherwise compile twice.
    return Batch(
        rows=rows,
        columns=columns,
        mutual=mutual,
        base=base,
        row_of=row_of,
        chosen=chosen,
        place_of=place_of,
        codes=result.codes.copy(),
        sign=result.sign.copy(),
        bound=result.bound.copy(),
        excess=excess,
        growth=np.full((problems, count), np.nan),
        progress=np.zeros((problems, FIELDS), np.int64),
    )


def _fill(kernel: Kernel, rows: Features, columns: Features, out: Floats) -> None:
    kernel.tile(rows, columns, out=out)


def _sums(
    expansion: Expansion, result: CandidateBatch, arrivals: Ints, changed: Ints, fresh: Floats
) -> NDArray[np.float64]:
    """Compute Σ α K of the result's rows with the current coefficients, shape (P, rows)."""
    weights = expansion.weights()
    unchanged = weights[:, : len(arrivals)].copy()
    unchanged[:, changed[changed < len(arrivals)]] = 0.0
    moved = np.ascontiguousarray(weights[:, changed])
    found = np.empty((len(weights), len(result.rows)))
    expansion.in_halves(
        lambda part: compute_sums(result.rows, fresh, unchanged, moved, found, *part), len(result.rows), SHARED_SUMS
    )
    return found


def finish_batch(expansion: Expansion, result: CandidateBatch, batch: Batch) -> None:
    """Finish a batch: free the places of evicted members, and move new members from their seats to places.

    A new member gets a place, a slot in the feature store and a cached row, and its values are added to all cached rows. Rows
    that have not been used for long are dropped.
    """
    assert expansion.store is not None
    cache, w = expansion.cache, expansion.working
    expansion.free_evicted()
    update_use_order(cache)
    drop_stale(cache, max(expansion.places // STALE, PAGE))
    seats, places = expansion.assign_places(batch.base, len(batch.mutual))
    rows = extend_rows(cache, expansion.places)
    expansion.in_halves(
        lambda part: write_columns(cache, rows[slice(*part)], places, batch.columns, seats), len(rows), SHARED_ROWS
    )
    entered = batch.chosen[seats]
    at = np.flatnonzero(result.row_of >= 0)[entered]
    expansion.example[places], expansion.code[places] = result.examples[at], result.codes[at]
    expansion.arrival[places] = cache.size[CLOCK] + np.arange(len(places))
    cache.size[CLOCK] += len(places)
    cache_new_rows(cache, places, batch.rows, batch.mutual, seats, expansion.places)
    if len(places):
        w.slot[places] = expansion.store.append(result.features.take(entered))
    expansion.compact()


@njit()
def compute_sums(
    scored: Floats, fresh: Floats, unchanged: Values, changed: Values, out: Values, first: int, last: int
) -> None:  # pragma: no cover
    """Write Σ α_s K_s of some rows to out[:, first:last].

    `scored` holds kernel values with the members at scoring time, `fresh` those with the members that are new since then.
    """
    width = scored.shape[1]
    for p in range(len(out)):
        weights, total = changed[p], out[p]
        for k in range(first, last):
            total[k] = weighted_sum(weights, fresh, k, 0, fresh.shape[1])
    for top in range(first, last, LINES):
        for p in range(len(out)):
            weights, total = unchanged[p], out[p]
            for k in range(top, min(top + LINES, last)):
                total[k] += weighted_sum(weights, scored, k, 0, width)


@njit()
def fill_rows(
    scored: Floats, fresh: Floats, changed: Ints, chosen: Ints, rows: Floats, columns: Floats, first: int, last: int
) -> None:  # pragma: no cover
    """Fill rows[:, first:last] and columns[first:last] from the scored values, or from fresh ones where a member is new."""
    for start in range(first, min(last, scored.shape[1]), LINES):
        stop = min(start + LINES, last, scored.shape[1])
        for k in range(len(chosen)):
            source, row = scored[chosen[k]], rows[k]
            for v in range(start, stop):
                row[v] = source[v]
                columns[v, k] = source[v]
    for f in range(len(changed)):
        v = changed[f]
        if first <= v < last:
            for k in range(len(chosen)):
                rows[k, v] = fresh[chosen[k], f]
                columns[v, k] = fresh[chosen[k], f]


def in_each_problem(expansion: Expansion, batch: Batch, run: Callable[[int], int]) -> bool:
    """Process a batch in every problem, several of them in parallel; return whether S has reached its largest size.

    Parameters
    ----------
    expansion : Expansion
    batch : Batch
    run : callable
        Continues with the given problem where it stopped; returns DONE, ROW_MISSING or FULL.
    """
    problems = len(batch.progress)
    codes = np.full(problems, ROW_MISSING)
    halves = [*range(0, problems, 2), *range(1, problems, 2)]

    def run_part(part: tuple[int, int]) -> None:
        for p in halves[slice(*part)]:
            codes[p] = run(p)

    expansion.in_halves(run_part, problems, 1)
    for p in range(problems):
        while codes[p] == ROW_MISSING:
            expansion.compute_row(int(batch.progress[p, MISSING]))
            codes[p] = run(p)
    return bool(np.any(codes == FULL))


@njit()
def row_available(cache: RowCache, batch: Batch, p: int, place: int) -> bool:  # pragma: no cover
    """Return whether a member's row is available; if not, progress[p, MISSING] says which one must be computed."""
    if place >= batch.base:
        return True
    batch.progress[p, MISSING] = place
    if cache.cached[place]:
        cache.touched[place] = True
        return True
    return False


@njit(inline=True)
def row_block(cache: RowCache, batch: Batch, place: int, block: int) -> Any:  # pragma: no cover
    """Return one block of a member's row, which must be present; the block that starts at `base` holds the seats."""
    if place >= batch.base:
        k = place - batch.base
        if block * PAGE == batch.base:
            return batch.mutual[k]
        return batch.rows[k][block * PAGE : (block + 1) * PAGE]
    if block * PAGE == batch.base:
        return batch.columns[place]
    return cache.pages[cache.table[place, block]]


@njit(inline=True)
def block_ends(batch: Batch, block: int) -> tuple[int, int]:  # pragma: no cover
    """Return where a block of the working arrays begins and where its used part ends."""
    start = block * PAGE
    if start == batch.base:
        return start, start + len(batch.mutual)
    return start, min(start + PAGE, batch.columns.shape[0])


@njit()
def kernel_value(cache: RowCache, batch: Batch, row: int, column: int) -> float:  # pragma: no cover
    """Return K of two members; the row must be present."""
    return np.float64(row_block(cache, batch, row, column // PAGE)[column % PAGE])
