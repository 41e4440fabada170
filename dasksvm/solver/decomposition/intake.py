"""Expansions whose examples become members with given coefficients and without kernel rows, for batch solvers and blocks."""

import numpy as np

from dasksvm.solver.engine.exact_sums import exact_margins
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Ints, Values
from dasksvm.solver.messages import CandidateBatch, View
from dasksvm.solver.state.expansion import MOVED_ROWS, Expansion
from dasksvm.solver.state.row_cache import CLOCK
from dasksvm.solver.state.working_arrays import Working, insert, set_alpha, take_place, write

# Gradients within CORRECTED_BAND of the extremes are recomputed in float64. If ERROR_FACTOR times the largest error found exceeds
# CORRECTED_BAND, all gradients are recomputed.
CORRECTED_BAND, ERROR_FACTOR = 0.05, 4.0


class RowlessExpansion(Expansion):
    """An expansion whose members enter without kernel rows."""

    def add_members(self, result: CandidateBatch, alpha: Values, selected: Flags, known: Ints) -> Ints:
        """Make the selected candidates of a batch members; return the places of those that have joined a problem, -1 for others.

        Parameters
        ----------
        result : CandidateBatch
        alpha : ndarray of float64, shape (P, m)
            Coefficients to begin with.
        selected : ndarray of bool, shape (P, m)
        known : ndarray of int64, shape (m,)
            Places of the examples that are members already, -1 for the others.
        """
        assert self.store is not None
        at, joined = np.flatnonzero(result.row_of >= 0), np.full(len(known), -1, np.int64)
        known = known[at]
        sign, bound = result.sign[:, at], result.bound[:, at]
        takes_part = selected[:, at] & (bound > 0)
        entering = np.flatnonzero((known < 0) & takes_part.any(axis=0))
        if len(entering) and np.any(self.cache.cached):
            self.release_rows()
        concerned = np.flatnonzero((known >= 0) | takes_part.any(axis=0))
        places = known.copy()
        places[concerned] = add_members(
            self.working,
            known[concerned],
            sign[:, concerned],
            bound[:, concerned],
            sign[:, concerned] - result.margins[:, at[concerned]],
            alpha[:, at[concerned]],
            takes_part[:, concerned],
        )
        rows, new = result.features.take(result.row_of[at[entering]]), places[entering]
        self.working.diagonal[new] = self.kernel.diagonal(rows)
        self.working.slot[new] = self.store.append(rows)
        self.example[new], self.code[new] = result.examples[at[entering]], result.codes[at[entering]]
        self.arrival[new] = self.cache.size[CLOCK] + np.arange(len(new))
        self.cache.size[CLOCK] += len(new)
        joined[at] = np.where(takes_part.any(axis=0), places, -1)
        return joined

    def write(self, problem: int, alpha: Values, g: Values) -> None:
        """Replace the coefficients and gradients of a problem."""
        write(self.working, problem, alpha, g)


class AllExamplesExpansion(RowlessExpansion):
    """An expansion whose members are all examples, with α = 0 at first."""

    band = True

    def add_all(self, result: CandidateBatch) -> None:
        """Make all examples of a batch members with α = 0."""
        self.make_room(result)
        nothing = np.zeros_like(result.sign)
        self.add_members(result, nothing, nothing == 0, self.find_places(result.examples, None))

    def exact_gradients_at(self, problem: int, places: Ints, alpha: Values) -> Values:
        """Compute g = y - Kα of some members in float64."""
        support = np.flatnonzero(alpha)
        members, slots = self.members(), self.order()
        vectors, weights, found = members.take(slots[support]), alpha[support][None], np.empty(len(places))

        def fill(part: tuple[int, int]) -> None:
            rows = members.take(slots[places[slice(*part)]])
            found[slice(*part)] = exact_margins(self.kernel, rows, vectors, weights)[0]

        self.in_halves(fill, len(places), MOVED_ROWS)
        gradients: Values = self.working.sign[problem, places] - found
        return gradients

    def corrected_gradients(
        self, problem: int, g: Values, alpha: Values, extremes: tuple[float, float]
    ) -> tuple[Values, float]:
        """Recompute the gradients of the members near the extremes in float64, or of all members if the errors are large.

        Returns
        -------
        g : ndarray of float64, shape (V,)
        error : float
            The largest error found.
        """
        top, bottom = extremes
        member = self.working.member[problem, : len(g)]
        near = np.flatnonzero(
            member & (g > min(top, bottom) - CORRECTED_BAND) & (g < max(top, bottom) + CORRECTED_BAND)
        )
        for places in (near, np.flatnonzero(member)):
            found = g.copy()
            found[places] = self.exact_gradients_at(problem, places, alpha)
            error = float(np.abs(found - g)[places].max(initial=0.0))
            if ERROR_FACTOR * error <= CORRECTED_BAND:
                break
        return found, error


def view_for_intake(version: int, problems: int) -> View:
    """Return a view without members: no kernel values are computed, and every example is returned."""
    everywhere = np.full(problems, np.inf)
    return View(
        version=version,
        generation=0,
        members=None,
        order=np.zeros(0, np.int64),
        alpha=np.zeros((problems, 0)),
        top=everywhere,
        bottom=-everywhere,
        needed_classes=np.ones((problems, 2), np.bool_),
        slack=everywhere,
        tau=0.0,
        band=True,
    )


@njit()
def add_members(
    w: Working, known: Ints, sign: Values, bound: Values, gradient: Values, alpha: Values, selected: Flags
) -> Ints:  # pragma: no cover
    """Make examples members of the problems for which they are selected; return their places."""
    places = np.empty(len(known), np.int64)
    for c in range(len(known)):
        places[c] = take_place(w) if known[c] < 0 else known[c]
        for p in range(len(sign)):
            if selected[p, c] and not w.member[p, places[c]]:
                insert(w, p, places[c], sign[p, c], bound[p, c], gradient[p, c])
                w.holders[places[c]] += 1
                if alpha[p, c] != 0.0:
                    set_alpha(w, p, places[c], alpha[p, c])
    return places
