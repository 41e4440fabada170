"""The multi-class core: structure, problems in two variables, steps, schedule and blocks, compared with independent solutions."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dasksvm.solver import generator
from dasksvm.solver.multiclass import schedule, steps
from dasksvm.solver.multiclass.block import solve_block
from dasksvm.solver.multiclass.gains import FirstVariable, best_extreme
from dasksvm.solver.multiclass.moves import load_of
from dasksvm.solver.multiclass.pairs import gain, increase, solve_box, solve_one, solve_simplex
from dasksvm.solver.multiclass.scan import violation
from dasksvm.solver.multiclass.structure import (
    Machine,
    coefficients,
    coupling,
    dual,
    gradients,
    losses,
    machine,
    nu,
)
from dasksvm.solver.multiclass.working_arrays import (
    Working,
    dual_objective,
    empty_working,
    evict,
    free_places,
    insert,
    random_member,
    widened,
)
from dasksvm.solver.state.batch import FIELDS, Batch
from dasksvm.solver.state.row_cache import PAGE, allocate_rows, empty_cache, write_rows
from dasksvm.solver.state.working_arrays import live_places, take_place
from tests.helpers import kernel_matrix

# Each machine is compiled separately: half a minute with an empty cache.
pytestmark = pytest.mark.slow
D = 4
KINDS: dict[str, Machine] = {
    "ww": machine("ww", D),
    "cs": machine("cs", D),
    "llw": machine("llw", D),
    "absolute total sum": Machine(relative=False, shared=False, total=True, zero_sum=True, classes=D),
    "absolute max": Machine(relative=False, shared=True, total=False, zero_sum=True, classes=D),
    "absolute max, free sum": Machine(relative=False, shared=True, total=False, zero_sum=False, classes=D),
    "relative total max": Machine(relative=True, shared=True, total=True, zero_sum=False, classes=D),
}
every_machine = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def margin_coefficients(kind: Machine, y: int, c: int) -> NDArray[np.float64]:
    """ν_{y,c,·} as in definitions 4 and 5, projected if the scores must sum to zero."""
    unit = np.eye(kind.classes)
    if kind.relative:
        return 0.5 * (unit[y] - unit[c])
    out = unit[c] if c == y else -unit[c]
    return out - out.mean() if kind.zero_sum else out


class Problem:
    """Thirty examples of four classes, and the quadratic problem of a machine written out."""

    def __init__(self, kind: Machine, n: int = 30, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.kind, self.n = kind, n
        self.labels = rng.integers(0, kind.classes, n)
        X = rng.normal(size=(n, 3)) + 0.7 * np.eye(kind.classes)[self.labels][:, :3]
        self.X, self.kernel = X, kernel_matrix("rbf", X, X, 0.4, 0.0, 0)
        self.bound = rng.uniform(0.5, 2.0, n)
        self.variables = [(i, c) for i in range(n) for c in range(kind.classes) if kind.total or c != self.labels[i]]
        vectors = np.array([margin_coefficients(kind, self.labels[i], c) for i, c in self.variables])
        self.of = np.array([i for i, _ in self.variables])
        self.Q = vectors @ vectors.T * self.kernel[np.ix_(self.of, self.of)]

    def optimum(self) -> float:
        """The dual optimum by a general optimiser."""
        sums = (self.of[None] == np.arange(self.n)[:, None]).astype(float)
        rule = {"type": "ineq", "fun": lambda a: self.bound - sums @ a, "jac": lambda a: -sums}
        result = scipy.optimize.minimize(
            lambda a: 0.5 * a @ self.Q @ a - a.sum(),
            np.zeros(len(self.Q)),
            jac=lambda a: self.Q @ a - 1.0,
            bounds=[(0.0, self.bound[i]) for i in self.of],
            constraints=[rule] if self.kind.shared else [],
            method="SLSQP",
            options={"maxiter": 2000, "ftol": 1e-13},
        )
        # Status 8: no further descent within rounding.
        assert result.status in (0, 8), result.message
        return float(-result.fun)

    def margins(self, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return coefficients(self.kind, alpha, self.labels) @ self.kernel

    def dual(self, alpha: NDArray[np.float64]) -> float:
        a = np.array([alpha[c, i] for i, c in self.variables])
        return float(a.sum() - 0.5 * a @ self.Q @ a)

    def assert_optimal(self, alpha: NDArray[np.float64], tolerance: float) -> None:
        """Check feasibility, the KKT conditions from their definition, the dual, and that the gap is zero."""
        self.assert_feasible(alpha)
        load = alpha.sum(axis=0)
        g = gradients(self.kind, self.margins(alpha), self.labels)
        for i in range(self.n):
            full = load[i] >= self.bound[i] * (1 - 1e-11) if self.kind.shared else False
            for c in range(self.kind.classes):
                if np.isinf(g[c, i]):
                    continue
                at_top = full if self.kind.shared else alpha[c, i] >= self.bound[i]
                assert at_top or g[c, i] <= tolerance
                assert alpha[c, i] == 0.0 or g[c, i] >= -tolerance
                if self.kind.shared and alpha[c, i] > 0.0:
                    assert np.max(g[:, i]) - g[c, i] <= tolerance
        value = self.dual(alpha)
        assert value == pytest.approx(self.optimum(), rel=1e-8)
        gap = self.bound @ losses(self.kind, self.margins(alpha), self.labels) - alpha[alpha > 0] @ g[alpha > 0]
        assert -1e-9 <= gap <= 1e-4 * value

    def assert_feasible(self, alpha: NDArray[np.float64]) -> None:
        assert np.all(alpha >= 0.0)
        top = alpha.sum(axis=0) if self.kind.shared else alpha.max(axis=0)
        assert np.all(top <= self.bound * (1 + 1e-11))
        if not self.kind.total:
            assert np.all(alpha[self.labels, np.arange(self.n)] == 0.0)


def empty_batch() -> Batch:
    """A batch without candidates, over two blocks of places."""
    values, ids, two = np.zeros((0, 0)), np.zeros(0, np.int64), 2 * PAGE
    rows, columns, at = np.zeros((0, two)), np.zeros((two, 0)), np.zeros((1, FIELDS), np.int64)
    return Batch(rows, columns, values, two, ids, ids, ids, ids, values, values, values, values, at)


EMPTY_BATCH = empty_batch()


class Online:
    """Working arrays and complete kernel rows of a problem's examples at scattered places."""

    def __init__(self, problem: Problem, enter: int | None = None) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(1)
        self.w: Working = empty_working(problem.kind.classes, PAGE)
        # Places beyond the first block, so that more than one block is searched.
        self.w.size[0] = PAGE - 11
        self.w = widened(self.w, 2 * PAGE)
        self.cache = empty_cache(1 << 22, 2 * PAGE, np.dtype(np.float64))
        self.place = np.array([take_place(self.w) for _ in range(problem.n)])
        rows = np.full((problem.n, PAGE - 11 + problem.n), np.nan)
        rows[:, self.place] = problem.kernel
        allocate_rows(self.cache, self.place, rows.shape[1])
        write_rows(self.cache, self.place, rows)
        self.random = generator.seeded(7)
        self.last = 0.0
        for i in range(problem.n if enter is None else enter):
            self.enter(i)

    def enter(self, i: int) -> int:
        problem, place = self.problem, int(self.place[i])
        alpha = np.zeros((problem.kind.classes, problem.n))
        alpha[:] = self.w.alpha[:, self.place]
        beta = coefficients(problem.kind._replace(zero_sum=False), alpha, problem.labels)
        self.w.diagonal[place] = problem.kernel[i, i]
        scores = beta @ problem.kernel[:, i]
        insert(self.w, problem.kind, place, problem.labels[i], problem.bound[i], scores)
        self.w.holders[place] = 1
        return place

    @property
    def alpha(self) -> NDArray[np.float64]:
        out: NDArray[np.float64] = self.w.alpha[:, self.place]
        return out

    def step(self, kind: int, strategy: int, place: int = -1) -> float:
        """Make one step; return the violation before it."""
        w, cache, form = self.w, self.cache, self.problem.kind
        number = generator.draw(self.random)
        found = steps.first_variable(w, EMPTY_BATCH, form, kind, strategy, place, number)
        if found.violation == 0.0:
            return 0.0
        j, q = found.place, found.second
        if q == steps.SEARCH:
            j, q = steps.second_variable(
                w, cache, EMPTY_BATCH, form, kind == steps.TWO_OLD_SUPPORTS, found.place, found.first
            )
        self._check_movable(found.place, found.first, kind)
        if q != steps.ALONE:
            self._check_movable(j, q, kind)
            assert (j, q) != (found.place, found.first)
        raised, touched = steps.apply_pair(w, cache, EMPTY_BATCH, form, found.place, found.first, j, q)
        assert touched > 0 or (form.relative and form.total)
        self.check(raised)
        return float(found.violation)

    def larank(self, kind: int, place: int) -> float:
        found = steps.larank_pair(self.w, self.problem.kind, kind, place)
        if found.violation > 0.0:
            rise, fall = found.first, found.second
            raised, _ = steps.apply_line(self.w, self.cache, EMPTY_BATCH, self.problem.kind, place, rise, fall)
            self.check(raised)
        return float(found.violation)

    def _check_movable(self, place: int, c: int, kind: int) -> None:
        w, form = self.w, self.problem.kind
        assert w.member[place]
        assert form.total or c != w.label[place]
        assert kind != steps.TWO_OLD_SUPPORTS or w.alpha[c, place] > 0.0

    def check(self, raised: float) -> None:
        """Check that the dual has risen by as much as the step reported."""
        now = dual_objective(self.w, self.problem.kind)
        assert now - self.last == pytest.approx(raised, abs=1e-9)
        assert raised >= -1e-12
        self.last = now

    def check_state(self) -> None:
        w, problem = self.w, self.problem
        alpha, members = self.alpha, w.member[self.place]
        problem.assert_feasible(alpha)
        assert np.all(alpha[:, ~members] == 0.0)
        assert np.allclose(w.load[self.place], alpha.sum(axis=0), rtol=1e-11)
        found = (w.score - w.mean)[:, self.place][:, members]
        assert np.allclose(found, problem.margins(alpha)[:, members], atol=1e-10)
        assert dual_objective(w, problem.kind) == pytest.approx(problem.dual(alpha), abs=1e-9)
        assert set(w.listed[: w.counts[0]]) == set(np.flatnonzero(w.member))


@every_machine
def test_nu_and_coupling_are_the_sums_of_the_definitions(kind: Machine) -> None:
    table = np.array([[margin_coefficients(kind, y, c) for c in range(D)] for y in range(D)])
    for y, p in itertools.product(range(D), repeat=2):
        row = np.array([nu(kind, y, p, m) for m in range(D)])
        assert np.allclose(row - row.mean() if kind.zero_sum else row, table[y, p], atol=1e-15)
        for z, q in itertools.product(range(D), repeat=2):
            assert coupling(kind, y, p, z, q) == pytest.approx(table[y, p] @ table[z, q], abs=1e-15)


@every_machine
def test_gradients_coefficients_and_losses_follow_from_the_definitions(kind: Machine) -> None:
    problem = Problem(kind)
    rng = np.random.default_rng(3)
    alpha = rng.uniform(size=(D, problem.n))
    if not kind.total:
        alpha[problem.labels, np.arange(problem.n)] = 0.0
    a = np.array([alpha[c, i] for i, c in problem.variables])
    f = problem.margins(alpha)
    g = gradients(kind, f, problem.labels)
    assert np.allclose([g[c, i] for i, c in problem.variables], 1.0 - problem.Q @ a)
    assert np.isinf(g).sum() == D * problem.n - len(problem.variables)
    assert dual(alpha, g) == pytest.approx(a.sum() - 0.5 * a @ problem.Q @ a)
    for i, loss in enumerate(losses(kind, f, problem.labels)):
        lacking = [
            max(0.0, 1.0 - margin_coefficients(kind, problem.labels[i], c) @ f[:, i])
            for j, c in problem.variables
            if j == i
        ]
        assert loss == pytest.approx(max(lacking) if kind.shared else sum(lacking))
    if kind.zero_sum or kind.relative:
        assert np.allclose(coefficients(kind, alpha, problem.labels).sum(axis=0), 0.0, atol=1e-14)


number = st.floats(-3, 3).map(lambda x: round(x, 3))
share = st.sampled_from([0.0, 1.0, 0.5, 0.25, -1.0, -0.7])
curvature = st.sampled_from([0.0, -1e-17, 1.0, 0.5, 2.0])


def printed_gain(g_i: float, g_j: float, q_ii: float, q_ij: float, q_jj: float) -> float:
    """Algorithm 4 as printed."""
    det = q_ii * q_jj - q_ij**2
    if q_ii == q_ij == q_jj == 0:
        return 0.0 if g_i == g_j == 0 else np.inf
    if abs(det) < 1e-12:
        if (q_ii and abs(g_i * q_ij - g_j * q_ii) > 1e-12) or (q_jj and abs(g_j * q_ij - g_i * q_jj) > 1e-12):
            return np.inf
        bent = g_i**2 * q_ii + 2 * g_i * g_j * q_ij + g_j**2 * q_jj
        return (g_i**2 + g_j**2) ** 2 / (2 * bent) if bent else 0.0
    return (g_i**2 * q_jj - 2 * g_i * g_j * q_ij + g_j**2 * q_ii) / (2 * det)


@settings(max_examples=200, derandomize=True)
@given(number, number, st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.5, 1.0, 2.0]), share)
def test_the_gain_is_that_of_algorithm_4(g_i: float, g_j: float, q_ii: float, q_jj: float, part: float) -> None:
    q_ij = part * np.sqrt(q_ii * q_jj)
    expected, found = printed_gain(g_i, g_j, q_ii, q_ij, q_jj), gain(g_i, g_j, q_ii, q_ij, q_jj)
    if np.isinf(expected):
        assert 1e5 < found < np.inf
    else:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_degenerate_gains_are_ordered_by_how_steep_they_are() -> None:
    assert gain(1.0, 1.0, 1.0, 1.0, 1.0) == pytest.approx(0.5)
    assert gain(1.0, -1.0, 1.0, -1.0, 1.0) == pytest.approx(0.5)
    assert gain(1.0, 0.5, 1.0, 1.0, 1.0) < gain(1.0, -1.0, 1.0, 1.0, 1.0) < np.inf
    assert gain(0.0, 0.0, 0.0, 0.0, 0.0) == 0.0 < gain(0.0, 1.0, 0.0, 0.0, 0.0) < gain(2.0, 0.0, 0.0, 0.0, 0.0)


def best_of_segments(Q: NDArray[np.float64], g: NDArray[np.float64], corners: NDArray[np.float64]) -> float:
    """The largest value over a polygon: at the unconstrained optimum if that is inside, else on an edge, solved exactly."""
    values = [0.0]
    if abs(np.linalg.det(Q)) > 1e-9 and np.ptp(corners) > 0.0:
        inner = np.linalg.solve(Q, g)
        sides = np.roll(corners, -1, axis=0) - corners
        normals = np.stack([-sides[:, 1], sides[:, 0]], axis=1)
        if np.all(np.sum(normals * (inner - corners), axis=1) >= 0):
            values.append(float(g @ inner - 0.5 * inner @ Q @ inner))
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        side = b - a
        bend, slope = side @ Q @ side, side @ (g - Q @ a)
        for t in (0.0, 1.0, np.clip(slope / bend, 0, 1) if bend > 1e-15 else 0.0):
            x = a + t * side
            values.append(float(g @ x - 0.5 * x @ Q @ x))
    return max(values)


unit = st.sampled_from([0.0, 1.0, 0.3])


@settings(max_examples=300, derandomize=True)
@given(number, number, curvature, curvature, share, unit, unit, unit)
def test_solutions_of_two_variables_are_the_best_of_their_polygon(
    g_i: float, g_j: float, q_ii: float, q_jj: float, part: float, a: float, b: float, room: float
) -> None:
    q_ij = part * np.sqrt(max(q_ii, 0.0) * max(q_jj, 0.0))
    Q, g = np.array([[q_ii, q_ij], [q_ij, q_jj]]), np.array([g_i, g_j])
    terms = (g_i, g_j, q_ii, q_ij, q_jj)
    mu = solve_box(*terms, -a, 1.5 - a, -b, 1.0 - b)
    assert -a <= mu[0] <= 1.5 - a
    assert -b <= mu[1] <= 1.0 - b
    corners = np.array([[-a, -b], [1.5 - a, -b], [1.5 - a, 1.0 - b], [-a, 1.0 - b]])
    assert increase(*terms, *mu) == pytest.approx(best_of_segments(Q, g, corners), abs=1e-11)
    upper = a + b + room
    mu = solve_simplex(*terms, a, b, upper)
    assert mu[0] >= -a
    assert mu[1] >= -b - 1e-15
    assert mu[0] + mu[1] <= room + 1e-15
    corners = np.array([[-a, -b], [upper - a, -b], [-a, upper - b]])
    assert increase(*terms, *mu) == pytest.approx(best_of_segments(Q, g, corners), abs=1e-11)


def test_the_simplex_solution_corrects_the_misprints_of_algorithm_11() -> None:
    # Line 3 as printed has μ_j = (Q_ij g_i - Q_ii g_j)/det, which has the wrong sign.
    assert solve_simplex(0.2, 0.4, 1.0, 0.5, 1.0, 0.0, 0.1, 5.0) == pytest.approx((0.0, 0.4))
    # Line 12 as printed keeps α_i below U - α_j on the edge α_i + α_j = U.
    assert solve_simplex(9.0, 0.0, 0.5, 0.25, 0.5, 0.2, 0.8, 1.0) == pytest.approx((0.8, -0.8))


def test_a_single_variable_stops_at_its_bounds() -> None:
    assert solve_one(1.0, 2.0, -1.0, 1.0) == 0.5
    assert solve_one(1.0, 0.0, -1.0, 1.0) == 1.0
    assert solve_one(-1.0, -1e-17, -0.25, 1.0) == -0.25
    assert solve_one(0.0, 0.0, -1.0, 1.0) == 0.0


@every_machine
def test_s2do_over_all_variables_reaches_the_optimum(kind: Machine) -> None:
    online = Online(Problem(kind))
    for _ in range(20000):
        if online.step(steps.TWO_OLD, steps.S2DO_ALL) <= 1e-7:
            break
    online.check_state()
    online.problem.assert_optimal(online.alpha, 3e-7)


@every_machine
def test_a_block_of_everything_reaches_the_optimum(kind: Machine) -> None:
    problem = Problem(kind)
    shape = (D, problem.n)
    alpha, score, mean = np.zeros(shape), np.zeros(shape), np.zeros(problem.n)
    data = (problem.labels, problem.bound)
    assert solve_block(kind, problem.kernel, alpha, score, mean, *data, 1e-7, 20000) < 20000
    assert solve_block(kind, problem.kernel, alpha, score, mean, *data, 1e-7, 20000) == 0
    assert np.allclose(score - mean, problem.margins(alpha), atol=1e-10)
    load = np.array([load_of(kind, alpha, problem.bound, i) for i in range(problem.n)])
    assert violation(kind, alpha, score, mean, *data, load).max() <= 1e-7
    problem.assert_optimal(alpha, 2e-7)


@every_machine
@pytest.mark.parametrize("name", ["linear", "rbf", "sigmoid"])
def test_degenerate_blocks_are_solved(kind: Machine, name: str) -> None:
    """Two classes, duplicates, rows of zeros, C_i = 0, float32 kernel values, and an indefinite kernel."""
    kind = kind._replace(classes=2)
    rng = np.random.default_rng(4)
    X, n = rng.normal(size=(40, 3)), 40
    X[10:20], X[20:24] = X[:10], 0.0
    kernel = kernel_matrix(name, X, X, 1.0, -0.5, 0).astype(np.float32)
    label, bound = rng.integers(0, 2, n), rng.uniform(0.1, 5.0, n)
    bound[30:35] = 0.0
    alpha, score, mean = np.zeros((2, n)), np.zeros((2, n)), np.zeros(n)
    assert solve_block(kind, kernel, alpha, score, mean, label, bound, 1e-4, 20000) < 20000
    load = np.array([load_of(kind, alpha, bound, i) for i in range(n)])
    assert violation(kind, alpha, score, mean, label, bound, load).max() <= 1e-4
    g = gradients(kind, coefficients(kind, alpha, label) @ kernel.astype(np.float64), label)
    # Checked without `violation`: no variable that can move along its gradient has a gradient above the tolerance.
    room = (load < bound)[None] if kind.shared else alpha < bound
    assert np.all((g <= 1.1e-4) | ~room)
    assert np.all((g >= -1.1e-4) | (alpha == 0.0))
    assert np.all(alpha[:, 30:35] == 0.0)


@every_machine
def test_the_search_finds_the_largest_gain_of_the_movable_variables(kind: Machine) -> None:
    problem = Problem(kind)
    online = Online(problem)
    for _ in range(25):
        online.step(steps.TWO_OLD, steps.RANDOM_PATTERN_S2DO_ALL)
        w, alpha = online.w, online.alpha
        g = gradients(kind, problem.margins(alpha), problem.labels)
        able = np.where(
            g > 0, w.load[online.place] < problem.bound if kind.shared else alpha < problem.bound, alpha > 0
        )
        able &= np.isfinite(g)
        i, p = problem.variables[int(generator.draw(online.random) * len(problem.variables))]
        first = problem.variables.index((i, p))
        gains = {
            (j, q): gain(g[p, i], g[q, j], problem.Q[first, first], problem.Q[first, at], problem.Q[at, at])
            for at, (j, q) in enumerate(problem.variables)
            if able[q, j] and at != first
        }
        place, q = steps.second_variable(w, online.cache, EMPTY_BATCH, kind, False, online.place[i], p)
        best = max(gains.values())
        j = int(np.flatnonzero(online.place == place)[0])
        assert gains[j, q] == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("name", ["ww", "cs", "llw", "absolute max, free sum"])
def test_the_best_extreme_has_the_largest_gain_of_algorithm_4(name: str) -> None:
    kind, n, i = KINDS[name], 40, 5
    rng = np.random.default_rng(2)
    kernel = kernel_matrix("rbf", *(rng.normal(size=(2, n, 3))), 0.3, 0, 0)
    label, classes = rng.integers(0, D, n), rng.integers(0, D, n)
    classes = np.where(classes == label, (classes + 1) % D, classes)
    gradient = rng.normal(size=n) * (rng.random(n) < 0.7)
    diagonal = rng.uniform(1.0, 1.5, n)
    for p in {0, 1, 2, 3} - {int(label[i])}:
        y = int(label[i])
        q_ii = coupling(kind, y, p, y, p) * diagonal[i]
        gains = np.zeros(n)
        for a in range(n):
            z, c = int(label[a]), int(classes[a])
            if gradient[a] != 0.0 and (a, c) != (i, p):
                pair = coupling(kind, y, p, z, c) * kernel[i, a], coupling(kind, z, c, z, c) * diagonal[a]
                gains[a] = 2 * (gain(0.7, gradient[a], q_ii, *pair) - gain(0.7, 0.0, q_ii, 0.0, 0.0))
        first, out = FirstVariable(p, y, 0.7, q_ii), np.empty(n, np.float32)
        best, lane, q = best_extreme(kind, first, i, gradient, classes, label, kernel[i], diagonal, out)
        assert best == pytest.approx(gains.max(), rel=1e-4)
        assert (lane, q) == (gains.argmax(), classes[gains.argmax()])


@every_machine
@pytest.mark.parametrize("strategy", range(3))
def test_steps_of_all_kinds_keep_the_invariants(kind: Machine, strategy: int) -> None:
    online = Online(Problem(kind), enter=4)
    gains = schedule.initial_gains(4)
    w, out, back, new = online.w, list(range(4, 30)), 0, 0
    for turn in range(160):
        place = random_member(w, generator.draw(online.random))
        step = schedule.next_adaptive(gains, online.random)
        if turn < 4 or (step == steps.TWO_NEWS and out):
            place, step = online.enter(out.pop()), steps.TWO_NEWS
            online.last = dual_objective(w, online.problem.kind)
            new += 1
        before = online.last
        online.step(step, strategy, place)
        schedule.record(gains, step, online.last - before, 1000)
        idle = [i for i in range(30) if w.member[online.place[i]] and w.load[online.place[i]] == 0.0]
        if idle and turn % 5 == 0:
            evict(w, online.place[idle[0]])
            out.append(idle[0])
            back += 1
    online.check_state()
    assert new > 4
    assert np.count_nonzero(online.alpha) > 10


def test_places_are_freed_and_reused() -> None:
    online = Online(Problem(KINDS["llw"]), enter=3)
    online.step(steps.TWO_NEWS, steps.S2DO_ALL, int(online.place[0]))
    evict(online.w, online.place[1])
    assert list(free_places(online.w)) == [online.place[1]]
    assert list(live_places(online.w)) == [online.place[0], online.place[2]]
    assert take_place(online.w) == online.place[1]
    assert {random_member(online.w, x) for x in (0.0, 0.49, 0.51, 0.999)} == {online.place[0], online.place[2]}
    wide = widened(online.w, 3 * PAGE)
    assert wide.alpha.shape == (D, 3 * PAGE)
    assert dual_objective(wide, KINDS["llw"]) == dual_objective(online.w, KINDS["llw"]) > 0.0


def test_larank_reaches_the_optimum_of_the_crammer_singer_machine() -> None:
    problem = Problem(KINDS["cs"])
    online = Online(problem, enter=0)
    for i in range(problem.n):
        online.last = dual_objective(online.w, problem.kind)
        online.larank(steps.PROCESS_NEW, online.enter(i))
        for kind in (steps.PROCESS_OLD, steps.OPTIMIZE, steps.OPTIMIZE):
            online.larank(kind, random_member(online.w, generator.draw(online.random)))
    assert 0.0 < online.last < problem.optimum()
    for _ in range(400):
        if max(online.larank(steps.PROCESS_OLD, int(place)) for place in online.place) <= 1e-7:
            break
    online.check_state()
    problem.assert_optimal(online.alpha, 1e-6)
    # The dual in LaRank's own coefficients is a quarter of this one.
    beta = coefficients(problem.kind, online.alpha, problem.labels) / 2
    assert np.all(beta[problem.labels, np.arange(problem.n)] <= problem.bound / 4 + 1e-12)
    own = beta[problem.labels, np.arange(problem.n)].sum() - 0.5 * np.sum(beta * (beta @ problem.kernel))
    assert own == pytest.approx(problem.optimum() / 4, rel=1e-8)


def test_optimize_leaves_variables_at_zero_alone() -> None:
    online = Online(Problem(KINDS["cs"]))
    place = int(online.place[0])
    assert online.larank(steps.OPTIMIZE, place) == 0.0
    online.larank(steps.PROCESS_NEW, place)
    held = online.w.alpha[:, place] > 0.0
    assert held.sum() == 1
    for _ in range(5):
        online.larank(steps.OPTIMIZE, place)
    assert np.array_equal(online.w.alpha[:, place] > 0.0, held)


def test_s2do_does_not_choose_what_cannot_move() -> None:
    """Algorithm 3 as printed would choose a variable at its bound, because it has the largest |g|; its step would be 0."""
    kind = KINDS["llw"]
    problem = Problem(kind, n=2)
    problem.labels[:] = 0, 1
    problem.kernel[:] = np.eye(2)
    problem.bound[:] = 0.1, 10.0
    online = Online(problem)
    w, place = online.w, online.place
    for c in (1, 2, 3):
        steps.apply_pair(w, online.cache, EMPTY_BATCH, kind, place[0], c, -1, steps.ALONE)
    steps.apply_pair(w, online.cache, EMPTY_BATCH, kind, place[1], 0, -1, steps.ALONE)
    online.last = dual_objective(w, kind)
    g = gradients(kind, problem.margins(online.alpha), problem.labels)
    # The first pattern is at its bound with |g| = 1 - 0.1 + 0.3/4; of the second, α = 4/3 leaves g = 1 + 1/3 for two classes.
    assert g[1:, 0] == pytest.approx(0.975)
    assert g[:, 1] == pytest.approx([0.0, -np.inf, 4 / 3, 4 / 3], abs=1e-12)
    found = steps.first_variable(w, EMPTY_BATCH, kind, steps.TWO_OLD, steps.S2DO_ALL, -1, 0.0)
    assert found == (pytest.approx(4 / 3), place[1], 2, steps.SEARCH)
    j, q = steps.second_variable(w, online.cache, EMPTY_BATCH, kind, False, place[1], 2)
    assert (j, q) == (place[1], 3)
    raised, _ = steps.apply_pair(w, online.cache, EMPTY_BATCH, kind, place[1], 2, j, q)
    # Q = [[3/4, -1/4], [-1/4, 3/4]], g = (4/3, 4/3): μ = 8/3 each, and the dual rises by g μ.
    assert online.w.alpha[2:, place[1]] == pytest.approx(8 / 3)
    assert raised == pytest.approx(32 / 9)
    online.last = dual_objective(w, kind)
    for _ in range(50):
        online.step(steps.TWO_OLD, steps.S2DO_ALL)
    assert steps.first_variable(w, EMPTY_BATCH, kind, steps.TWO_OLD, steps.S2DO_ALL, -1, 0.0).violation <= 1e-9


def test_a_pattern_without_slack_moves_by_an_exchange() -> None:
    kind = KINDS["cs"]
    problem = Problem(kind, n=2)
    problem.labels[:] = 0, 1
    problem.kernel[:] = np.eye(2)
    problem.bound[:] = 1.0, 1.0
    online = Online(problem)
    w, place = online.w, online.place
    for at in place:
        steps.apply_pair(w, online.cache, EMPTY_BATCH, kind, at, 2, -1, steps.ALONE)
    online.last = dual_objective(w, kind)
    found = steps.first_variable(w, EMPTY_BATCH, kind, steps.TWO_OLD, steps.S2DO_ALL, -1, 0.0)
    assert (found.place, found.first, found.second) == (place[0], 1, 2)
    assert found.violation == pytest.approx(0.25)
    online.step(steps.TWO_OLD, steps.S2DO_ALL)
    assert w.alpha[:, place[0]] == pytest.approx([0.0, 0.5, 0.5, 0.0])
    assert w.load[place[0]] == 1.0


def test_the_schedule_keeps_a_least_probability_and_repeats() -> None:
    gains = schedule.initial_gains(3)
    assert schedule.probabilities(gains) == pytest.approx([1 / 3] * 3)
    for _ in range(2000):
        schedule.record(gains, 1, 5.0, 10)
        schedule.record(gains, 2, -1e-15, 10)
        schedule.record(gains, 0, 0.0, 0)
    chances = schedule.probabilities(gains)
    assert gains / schedule.SECOND == pytest.approx([0.0, 0.5, 0.0], abs=1e-12)
    assert chances.sum() == pytest.approx(1.0)
    assert chances == pytest.approx([0.05, 0.9, 0.05])
    assert schedule.probabilities(np.zeros(4)) == pytest.approx([0.25] * 4)
    drawn = [schedule.next_adaptive(gains, random) for random in [generator.seeded(5)] for _ in range(4000)]
    assert np.bincount(drawn) / 4000 == pytest.approx(chances, abs=0.02)
    state = generator.seeded(5)
    again = [schedule.next_adaptive(gains, state) for _ in range(2000)]
    state = state.copy()
    again += [schedule.next_adaptive(gains, state) for _ in range(2000)]
    assert again == drawn
    assert [schedule.next_fixed(step, 3) for step in range(3)] == [1, 2, 0]
    assert (schedule.multiplier(0, 26), schedule.multiplier(2, 26)) == (1, 26)


def test_random_numbers_are_those_of_splitmix64() -> None:
    state: Any = generator.seeded(1234567)
    assert [generator.draw(state) for _ in range(3)] == [
        (word >> 11) / 2**53 for word in (6457827717110365317, 3203168211198807973, 9817491932198370423)
    ]


@pytest.mark.parametrize("strategy", range(3))
def test_the_cost_of_a_choice_is_the_number_of_values_read(strategy: int) -> None:
    online = Online(Problem(KINDS["ww"]))
    places = int(online.w.counts[0])
    for kind, searched in itertools.product((steps.TWO_NEWS, steps.TWO_OLD), (False, True)):
        every = kind == steps.TWO_OLD and strategy == steps.S2DO_ALL
        expected = (D * places if every else D) + D * places * searched
        assert steps.selection_cost(online.w, KINDS["ww"], kind, strategy, searched) == expected
