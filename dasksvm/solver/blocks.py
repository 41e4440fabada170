"""Decomposition in blocks: the exact SVM of data that need not fit in memory.

S holds the examples in play; finishing solves the problem restricted to them, in blocks (`finishing`). Around it goes a loop over the
whole set: a *look* computes the gradients of examples outside S where they lie, those that violate, or nearly do, come in, and S is
solved again. S grows: the first examples of the order are solved, then those that violate among twice as many, and so on.

Not every look is at all examples. Between two solutions w moves by d = |w - w'|, d² = Δα·KΔα = -Δα·Δg over S, and no decision value
by more than d √K(x, x). An example whose gradient lies further from the extremes than w has moved since its last look cannot violate,
and waits. So the last look says of every example that it is at rest.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.batch import Batch
from dasksvm.solver.exact import BatchLearner
from dasksvm.solver.expansion import Expansion
from dasksvm.solver.features import Ints
from dasksvm.solver.finishing import Finishing
from dasksvm.solver.jit import njit
from dasksvm.solver.messages import CandidateBatch, ScorePlan, View
from dasksvm.solver.selection import RandomOrder
from dasksvm.solver.working import insert, refresh_extremes, set_alpha, take_place

Values = NDArray[np.float64]
import os, time; LOG=os.environ.get('LOG'); QUANTILE=float(os.environ.get('Q','0.5')); T0=time.time()
# Examples of the first look; by how much the part of the set that was met grows; examples that are looked at together.
FIRST, GROWTH, LOOK = int(os.environ.get('FIRST','2000')), float(os.environ.get('GROW','2')), 2048
# How far S is solved while examples are still to be met.
COARSE = float(os.environ.get('COARSE','0.1'))
NEAR = float(os.environ.get('NEAR','0.5'))


class LooseExpansion(Expansion):
    """Members that come in without kernel rows."""

    def take_in(self, result: CandidateBatch, alpha: Values, wanted: NDArray[np.bool_]) -> None:
        """Make members, in the problems where they are wanted, of the candidates of a batch."""
        assert self.store is not None
        at = np.flatnonzero(result.row_of >= 0)
        known = self.known(result.examples[at], None)
        new = known < 0
        if np.any(new) and np.any(self.cache.cached):
            self.release_rows()
        w, sign = self.working, result.sign[:, at]
        places = take_in(w, known, sign, result.bound[:, at], sign - result.margins[:, at], alpha[:, at], wanted[:, at])
        self.vacate()
        rows, came = result.features.take(np.flatnonzero(new)), places[new]
        w.diagonal[came] = self.kernel.diagonal(rows)
        w.slot[came] = self.store.append(rows)
        self.example[came], self.code[came], self.arrival[came] = result.examples[at[new]], result.codes[at[new]], came


class BlockLearner(BatchLearner):
    """Decomposition in blocks on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : Settings
        With decomposition rules.
    """

    expansion: LooseExpansion

    def _expansion(self) -> Expansion:
        return LooseExpansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def feed(self, order: RandomOrder, seeds: Ints) -> None:
        """Begin with the examples of the start, or with `seeds`.

        Parameters
        ----------
        order : RandomOrder
        seeds : ndarray of int64
        """
        super().feed(order, self.started if len(self.started) else seeds)
        shape = (self.settings.problems, len(order))
        # Of every example that was looked at: its gradient, how far w had gone then, and its label, 0 where it takes no part.
        self.gradient: Values = np.zeros(shape)
        self.looked = np.full((2, *shape), -np.inf, np.float32)
        self.side = np.zeros(shape, np.int8)
        self.path: Values = np.zeros((2, self.settings.problems))
        self.certain = False
        self.band: Values = np.zeros(self.settings.problems)
        # The extremes at the last look: those who come in meanwhile are beyond them.
        self.reach: Values = np.tile([-np.inf, np.inf], (self.settings.problems, 1))
        self.met = 0

    def stop(self) -> None:
        """End with what there is."""
        self.stopped = True

    # Asking

    def _turn(self) -> None:
        if self.phase == "online":
            self._recompute()
            self.met = len(self.order) if len(self.started) else 0
        if LOG: 
            n=self.finishing[0] if self.finishing else None
            print("looked", self.phase, self.met, "looked", 0 if self.queue is None else len(self.queue), "S", len(self.expansion.examples()), "SV", int((self.expansion.working.alpha[0]!=0).sum()), "dual", self._standing()[1], "steps", self.steps, "evals", round((self.evaluations+self.expansion.evaluations)/1e6,1), "path", self.path, "band", self.band, round(time.time()-T0,2), round(time.process_time(),1), len(self.expansion.store))
        self.phase = "finishing"
        self.begin_finishing(0)

    def _look_at(self, rows: Ints) -> None:
        self.reach = np.stack(self.expansion.limits(), axis=1)
        self.phase, self.queue, self.position = "checking", rows, 0

    def _next_rows(self) -> Ints:
        if self.phase == "seeding":
            return super()._next_rows()
        if self.phase != "checking" or self.stopped:
            return np.zeros(0, np.int64)
        assert self.queue is not None
        start, self.position = self.position, min(self.position + LOOK, len(self.queue))
        return self.queue[start : self.position]

    def _view(self) -> View:
        """Publish the support vectors, and how near an example must be to come in."""
        if self.phase == "seeding":
            view = self.expansion.view(self.applied, None, np.full(self.settings.problems, np.inf), 0.0)
        else:
            view = self.expansion.view(self.applied, None, self.band, 0.0)
        used = np.flatnonzero(np.any(view.alpha != 0.0, axis=0))
        return replace(
            view,
            order=view.order[used],
            alpha=view.alpha[:, used],
            top=self.reach[:, 0],
            bottom=self.reach[:, 1],
            wants=np.ones_like(view.wants),
            tile=False,
        )

    # Taking

    def _look(self, result: CandidateBatch) -> None:
        at = result.examples - self.order.base
        self.gradient[:, at] = result.sign - result.margins
        self.looked[:, :, at] = self.path[:, :, None]
        self.side[:, at] = np.where(result.bound > 0, result.sign, 0)
        if not self.stopped:
            self.expansion.make_room(result)
            alpha = np.zeros_like(result.margins)
            self.expansion.take_in(result, alpha, self._lacking(at) > -self.band[:, None])

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        """Take in the examples that the run begins with."""
        self.expansion.make_room(result)
        alpha = self.started_at(result.examples)
        self.expansion.take_in(result, alpha, np.ones(alpha.shape, np.bool_))

    def _run(self, batch: Batch) -> bool:
        raise NotImplementedError

    def _recompute(self) -> None:
        """Compute the gradients of the members, which came in with coefficients of their own."""
        s = self.expansion
        w = s.working
        for p in range(self.settings.problems):
            members = np.flatnonzero(w.member[p, : s.places])
            moved = members[w.alpha[p, members] != 0]
            g = w.sign[p, : s.places].copy()
            if len(moved):
                s.move(g, members, moved, w.alpha[p, moved])
            w.g[p, : s.places] = g
            refresh_extremes(w, p)

    # Around S

    def _tau(self) -> float:
        tau = self.settings.rules.tau
        return tau if self.met == len(self.order) else max(COARSE, tau)

    def _finished(self) -> None:
        at_rest = self.certain and all(now.rounds == 0 for now in self.finishing)
        if self.stopped or at_rest:
            self.converged = not self.stopped
            self._closed()
            self.phase = "done"
            return
        self.certain = self.met == len(self.order) and all(now.rounds == 0 for now in self.finishing)
        for now in self.finishing:
            self._note(now)
        self._go_on()
        self._meet()

    def _note(self, now: Finishing) -> None:
        """Note how far a solution has moved w, and typically a gradient, and the gradients of the members."""
        s, p = self.expansion, now.problem
        w, places = s.working, np.flatnonzero(now.member)
        moves = (now.g - w.g[p, : len(now.g)])[places]
        self.path[0, p] += np.quantile(np.abs(moves), float(os.environ.get("Q2","0.9")))
        self.path[1, p] += np.sqrt(max(-(now.alpha - w.alpha[p, : len(now.alpha)])[places] @ moves, 0.0))
        self.band[p] = np.quantile(np.abs(moves), QUANTILE) if self.met == len(self.order) else 0.0
        at = s.example[places] - self.order.base
        self.gradient[p, at], self.looked[:, p, at], self.side[p, at] = now.g[places], self.path[:, p, None], w.sign[p, places]

    def _adopt(self) -> None:
        for now in self.finishing:
            self.expansion.adopt(now.problem, now.alpha, now.g, self.band[now.problem])

    def _meet(self) -> None:
        """Look at as many examples as were met, or at all that may violate once there are no more."""
        start = self.met
        self.met = min(max(int(GROWTH * start), FIRST), len(self.order))
        self.seen = self.met
        if start < self.met:
            self._look_at(self.order.rows(0, start, self.met))
            return
        self.epoch += 1
        self.reach = np.stack(self.expansion.limits(), axis=1)
        rows = self.order.rows(self.epoch, 0, len(self.order))
        self._look_at(rows[self._doubtful()[rows - self.order.base]])

    def _lacking(self, at: Any) -> Values:
        """How far examples violate with the extreme members, as they were when they were looked at; -inf where they take no part."""
        top, bottom = self.reach.T
        gradient, side = self.gradient[:, at], self.side[:, at]
        found = np.where(side > 0, gradient - bottom[:, None], top[:, None] - gradient)
        return np.where(side == 0, -np.inf, found)

    def _doubtful(self) -> NDArray[np.bool_]:
        """Tell which examples have to be looked at: never looked at, or w has moved too far since for what they lack."""
        far = self.path[int(self.certain), :, None] - self.looked[int(self.certain)]
        if self.certain and self.settings.kernel.name != "rbf":
            far[far > 0] = np.inf
        doubtful = np.isposinf(far) | (self._lacking(slice(None)) + far > 0)
        s = self.expansion
        live = np.flatnonzero(s.working.holders[: s.places])
        doubtful[:, s.example[live] - self.order.base] &= ~s.working.member[:, live]
        found: NDArray[np.bool_] = doubtful.any(axis=0)
        return found


@njit()
def take_in(
    w: Any, known: Any, sign: Any, bound: Any, gradient: Any, alpha: Any, wanted: Any
) -> Any:  # pragma: no cover
    """Make members of examples, in the problems where they are wanted; return their places."""
    places = np.empty(len(known), np.int64)
    for c in range(len(known)):
        places[c] = take_place(w) if known[c] < 0 else known[c]
        for p in range(len(sign)):
            if bound[p, c] > 0.0 and wanted[p, c] and not w.member[p, places[c]]:
                insert(w, p, places[c], sign[p, c], bound[p, c], gradient[p, c])
                w.holders[places[c]] += 1
                if alpha[p, c] != 0.0:
                    set_alpha(w, p, places[c], alpha[p, c])
    return places
