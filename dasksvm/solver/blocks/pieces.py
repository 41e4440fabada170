"""Weighted sums of kernel values, in pieces of fixed shapes: the result does not depend on how many threads share the pieces."""

import numpy as np

from dasksvm.solver.engine.tiles import Nonzeros, add_up, nonzeros_of
from dasksvm.solver.kernels.features import Features, Flags, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import fill_uniformly
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import SumsPlan
from dasksvm.solver.state.expansion import Expansion

# Rows of a piece, and of a piece of known values, which are few so that they stay in the cache.
PIECE_ROWS, KNOWN_ROWS = 512, 32
# Kernel values of each row that are computed before they are added up: a few rounds can change the coefficients of half of S.
# Values that are known are added up in the same blocks, so that the bits of the sums are the same.
COLUMNS = 8192


def pieces_of(plan: SumsPlan) -> int:
    """Return the number of pieces of the sums at members."""
    return -(-len(plan.order) // PIECE_ROWS)


def some_sums(kernel: Kernel, plan: SumsPlan, first: int, last: int, workspace: Workspace) -> Values:
    """Compute the pieces from `first` to `last` of Σ_s amount_s K_s at members, shape (P, rows)."""
    assert plan.members is not None
    order, support = plan.order[first * PIECE_ROWS : last * PIECE_ROWS], plan.members.take(plan.support)
    found, blocks = np.zeros((len(plan.amounts), len(order))), _blocks_of(plan.amounts)
    everywhere = np.ones((len(plan.amounts), PIECE_ROWS), np.bool_)
    for start in range(0, len(order), PIECE_ROWS):
        rows = plan.members.take(order[start : start + PIECE_ROWS], workspace)
        part = slice(start, start + len(rows))
        _fill_sums(kernel, rows, support, blocks, everywhere[:, : len(rows)], False, found[:, part], workspace)
    return found


def sums_at_members(s: Expansion, plan: SumsPlan) -> Values:
    """Compute Σ_s amount_s K_s at members, shape (P, m), here or elsewhere: the pieces and their bits are the same."""
    s.evaluations += len(plan.order) * len(plan.support)
    found = None if s.tools.sums_elsewhere is None else s.tools.sums_elsewhere(plan)
    if found is not None:
        return found
    result = np.empty((len(plan.amounts), len(plan.order)))

    def fill(part: tuple[int, int]) -> None:
        at = slice(part[0] * PIECE_ROWS, part[1] * PIECE_ROWS)
        result[:, at] = some_sums(s.kernel, plan, *part, s.workspaces[min(part[0], 1)])

    s.in_halves(fill, pieces_of(plan), 1)
    return result


def sums(s: Expansion, features: Features, support: Features, amounts: Values, wanted: Flags, uniform: bool) -> Values:
    """Compute Σ_s amount_s K(x, x_s) of each row, shape (P, m), for amounts of shape (P, U).

    Parameters
    ----------
    s : Expansion
    features, support : Features
    amounts : ndarray of float64
    wanted : ndarray of bool, shape (P, m)
        Which sums are needed; the others are 0.
    uniform : bool
        Whether each kernel value has the bits that it has in other tiles (see `kernels.uniform`).
    """
    count, blocks = len(features), _blocks_of(amounts)
    found = np.zeros((len(amounts), count))

    def fill(part: tuple[int, int]) -> None:
        workspace = s.workspaces[min(part[0], 1)]
        for piece in range(*part):
            at = slice(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, count))
            rows = features.part(at.start, at.stop)
            _fill_sums(s.kernel, rows, support, blocks, wanted[:, at], uniform, found[:, at], workspace)

    s.in_halves(fill, -(-count // PIECE_ROWS), 1)
    s.evaluations += count * len(support)
    return found


def _fill_sums(
    kernel: Kernel,
    rows: Features,
    support: Features,
    blocks: list[Nonzeros],
    wanted: Flags,
    uniform: bool,
    found: Values,
    workspace: Workspace,
) -> None:
    """Add the sums of the rows of a piece to `found`."""
    partial = np.zeros_like(found)
    for number, nonzeros in enumerate(blocks):
        columns = support.part(number * COLUMNS, min((number + 1) * COLUMNS, len(support)))
        values = workspace.array("values", (len(rows), len(columns)), rows.dtype)
        if uniform:
            fill_uniformly(kernel, rows, columns, values, workspace)
        else:
            kernel.tile(rows, columns, out=values)
        add_up(values, *nonzeros, wanted, partial)
        found += partial


def _blocks_of(amounts: Values) -> list[Nonzeros]:
    """Return the amounts that are not 0 of each block of columns."""
    return [nonzeros_of(amounts[:, start : start + COLUMNS]) for start in range(0, amounts.shape[1], COLUMNS)]


def sums_of_known(s: Expansion, values: Floats, at: Ints, amounts: Values, wanted: Flags) -> Values:
    """Compute the same sums from kernel values that are known, in the columns `at` of `values`."""
    found, blocks = np.zeros((len(amounts), len(values))), _blocks_of(amounts)

    def add(part: tuple[int, int]) -> None:
        for start in range(*part, KNOWN_ROWS):
            rows = slice(start, min(start + KNOWN_ROWS, part[1]))
            partial = np.zeros_like(found[:, rows])
            for number, nonzeros in enumerate(blocks):
                columns = at[number * COLUMNS : (number + 1) * COLUMNS]
                add_up(values[rows].take(columns, axis=1), *nonzeros, wanted[:, rows], partial)
                found[:, rows] += partial

    s.in_halves(add, len(values), KNOWN_ROWS)
    return found
