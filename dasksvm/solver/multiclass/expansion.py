"""The expansion of a multi-class machine: patterns with an α and a score for each class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch, View
from dasksvm.solver.multiclass.moves import loads
from dasksvm.solver.multiclass.structure import Machine, coefficients, gradients
from dasksvm.solver.multiclass.working_arrays import assign_places, empty_working, evict, free_places, widened
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import PAGE


class PatternExpansion(Expansion):
    """The members of a machine's expansion with their working arrays, features and cached kernel rows.

    Parameters
    ----------
    kernel : Kernel
    machine : Machine
    cache_bytes : int
    """

    def __init__(self, kernel: Kernel, machine: Machine, cache_bytes: int) -> None:
        self.machine: Machine = machine
        super().__init__(kernel, machine.classes, cache_bytes)

    def _empty(self, problems: int) -> Any:
        return empty_working(problems, PAGE)

    def _widened(self, places: int) -> Any:
        return widened(self.working, places)

    def _free_places(self) -> Ints:
        freed: Ints = free_places(self.working)
        return freed

    def labels(self) -> Ints:
        """Return the class of each place."""
        labels: Ints = self.working.label[: self.places]
        return labels

    def alpha(self) -> Values:
        """Return α of each place, shape (d, V)."""
        alpha: Values = self.working.alpha[:, : self.places]
        return alpha

    def weights(self) -> Values:
        """Return the coefficients of the scores, which are those before the projection, shape (d, V)."""
        return coefficients(self.machine._replace(zero_sum=False), self.alpha(), self.labels())

    def violations_and_state(self, result: CandidateBatch, at: Ints, found: Values) -> tuple[Values, Values]:
        """Return how far the examples `at` of a batch violate, shape (1, n), and the state to store for them: their scores."""
        margins = found - found.mean(axis=0) if self.machine.zero_sum else found
        return gradients(self.machine, margins, result.codes[at]).max(axis=0)[None], found

    def is_member(self, known: Ints) -> NDArray[np.bool_]:
        """Return whether each place is a member, shape (1, n); a place of -1 is none."""
        held: NDArray[np.bool_] = (known >= 0) & self.working.member[known]
        return held[None]

    def fill_seats(self, base: int, state: Values) -> None:
        """Store the scores of candidates in their seats; with a bound of 0 they cannot move before they are members."""
        w, seats = self.working, slice(base, base + state.shape[1])
        w.score[:, seats] = state
        w.mean[seats] = state.mean(axis=0) if self.machine.zero_sum else 0.0
        w.alpha[:, seats] = 0.0
        w.bound[seats] = w.load[seats] = 0.0

    def assign_places(self, base: int, count: int) -> tuple[Ints, Ints]:
        """Move the members in the first `count` seats to places; return their seat numbers and their places."""
        seats, places = assign_places(self.working, base, count)
        return seats, places

    def view(self, version: int, alpha: Values | None, slack: Values, tau: float) -> View:
        """Publish the state; `alpha`, of shape (d, V), replaces the α."""
        return View(
            version=version,
            generation=self.generation,
            members=None if self.store is None else self.members(),
            order=self.order(),
            alpha=coefficients(self.machine, self.alpha() if alpha is None else alpha, self.labels()),
            top=np.zeros(1),
            bottom=np.zeros(1),
            needed_classes=np.ones((1, 2), np.bool_),
            slack=slack,
            tau=tau,
            machine=self.machine,
        )

    def replace(self, alpha: Values, score: Values) -> None:
        """Replace α and the scores; patterns whose α are now all 0 are evicted."""
        w, places = self.working, slice(0, self.places)
        w.alpha[:, places], w.score[:, places] = alpha, score
        w.mean[places] = score.mean(axis=0) if self.machine.zero_sum else 0.0
        w.load[places] = loads(self.machine, alpha, w.bound[places])
        for place in np.flatnonzero(w.member[places] & (w.load[places] == 0.0)).tolist():
            evict(w, place)
        self.free_evicted()

    def exact_scores(self, alpha: Values) -> Values:
        """Compute the scores of each place, before the projection, in float64, for given α; 0 at places without a member."""
        live = np.flatnonzero(self.working.member[: self.places])
        beta = coefficients(self.machine._replace(zero_sum=False), alpha, self.labels())[:, live]
        score = np.zeros(alpha.shape)
        score[:, live] = self.exact_sums(live, beta)
        return score

    def check(self, tolerance: float) -> None:
        """Raise AssertionError unless box, scores, lists and cached rows are consistent."""
        w, places = self.working, self.places
        live = np.flatnonzero(w.member[:places])
        alpha, out = w.alpha[:, :places], ~w.member[:places]
        assert np.all(alpha >= 0.0)
        assert np.all(alpha[:, out] == 0.0)
        assert np.all(w.bound[:places][out] == 0.0)
        load = alpha.sum(axis=0)
        assert np.all((load if self.machine.shared else alpha.max(axis=0, initial=0.0)) <= w.bound[:places] + 1e-12)
        assert np.allclose(load, w.load[:places])
        assert sorted(w.listed[: w.counts[0]]) == live.tolist()
        if len(live):
            score = self.exact_scores(alpha)
            assert np.all(np.abs(score[:, live] - w.score[:, live]) <= tolerance)
        self._check_rows(tolerance)
