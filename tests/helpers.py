"""Small problems, and independent reference solutions for them."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.solver.blocks.exact_learner import ExactSettings
from dasksvm.solver.decomposition.rules import BlockRules, DecompositionSettings, PairRules, PairSettings
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.selection import RandomOrder, Selection
from dasksvm.solver.kernels.features import DenseFeatures, SparseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.lasvm.learner import LasvmSettings, TwoClassLearner
from dasksvm.solver.messages import Progress, Targets
from dasksvm.solver.state.expansion import SEEDS
from dasksvm.training.local_executor import LocalExecutor

# Kernels that are positive definite with the parameters that tests give them.
DEFINITE_KERNELS = [name for name in KERNELS if name != "sigmoid"]
# Criteria that choose among candidates.
CHOOSING_CRITERIA = [name for name, criterion in CRITERIA.items() if criterion.measure is not None]
IN_RANDOM_ORDER = Selection()
# What settings of all solvers have, where a test says nothing else.
COMMON: dict[str, Any] = {
    "problems": 1,
    "epochs": 1,
    "max_examples": 1 << 60,
    "max_support": 1 << 60,
    "cache_bytes": 50 << 20,
    "inflight_bytes": 50 << 20,
    "lookahead": 8,
    "filter": True,
    "selection": IN_RANDOM_ORDER,
    "tau": 1e-3,
}


def blobs(n: int, d: int = 5, seed: int = 0, shift: float = 0.6) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw two overlapping classes."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1, -1)
    y[:2] = 1, -1
    return rng.normal(size=(n, d)) + shift * y[:, None], y


def kernel_matrix(name: str, X: Any, Z: Any, gamma: float, coef0: float, degree: int) -> NDArray[np.float64]:
    """Compute kernel values directly from their textbook formulas."""
    dots = X @ Z.T
    match name:
        case "linear":
            return dots
        case "poly":
            return (gamma * dots + coef0) ** degree
        case "sigmoid":
            return np.tanh(gamma * dots + coef0)
        case "rbf":
            return np.exp(-gamma * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2))
        case "laplacian":
            return np.exp(-gamma * np.abs(X[:, None, :] - Z[None, :, :]).sum(axis=2))
        case _:
            raise ValueError(f"there is no formula for the kernel {name!r} here")


def dual_of(K: Any, y: NDArray[Any], alpha: NDArray[np.float64]) -> Any:
    return alpha @ y - 0.5 * alpha @ K @ alpha


def violation_of(K: Any, y: NDArray[Any], C: Any, alpha: NDArray[np.float64]) -> Any:
    g = y - K @ alpha
    return np.max(g[alpha < np.maximum(0, C * y)]) - np.min(g[alpha > np.minimum(0, C * y)])


def exact_dual(K: Any, y: NDArray[Any], C: Any) -> Any:
    """The optimum: an active set is refined with a linear solver until every condition of optimality holds to rounding."""
    lower, upper = np.minimum(0, C * y), np.maximum(0, C * y)
    K = K + 1e-13 * np.trace(K) / len(K) * np.eye(len(K))
    alpha = np.zeros(len(y))
    for _ in range(20000):
        g = y - K @ alpha
        up, down = np.flatnonzero(alpha < upper), np.flatnonzero(alpha > lower)
        i, j = up[np.argmax(g[up])], down[np.argmin(g[down])]
        if g[i] - g[j] <= 1e-9:
            break
        # A Newton step among the free ones and the worst pair, as far as the box lets it.
        free = np.flatnonzero((alpha > lower) & (alpha < upper) | np.isin(np.arange(len(y)), (i, j)))
        size = len(free)
        system = np.block([[K[np.ix_(free, free)], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
        step = np.linalg.lstsq(system, np.append(g[free], 0.0), rcond=1e-13)[0][:size]
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0, (upper[free] - alpha[free]) / step, (lower[free] - alpha[free]) / step)
        room[step == 0] = np.inf
        length = min(1.0, room.min())
        if length * (step @ g[free]) <= 1e-14:
            free, size = np.array([i, j]), 2
            curvature = max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
            step, length = (
                np.array([1.0, -1.0]),
                min((g[i] - g[j]) / curvature, upper[i] - alpha[i], alpha[j] - lower[j]),
            )
        alpha[free] = np.clip(alpha[free] + length * step, lower[free], upper[free])
    assert violation_of(K, y, C, alpha) <= 1e-7
    assert abs(alpha.sum()) <= 1e-9
    return dual_of(K, y, alpha)


class Rows:
    """A source of examples for a learner, from arrays."""

    def __init__(self, X: Any, y: NDArray[Any], bound: NDArray[np.float64], dtype: Any = np.float64) -> None:
        self.sign, self.bound = np.asarray(y, np.float64), bound
        if sp.issparse(X):
            self.all: Any = SparseFeatures.of(X.data.astype(dtype), X.indices, X.indptr, X.shape[1])
        else:
            self.all = DenseFeatures.of(np.ascontiguousarray(X, dtype))

    def features(self, rows: NDArray[np.int64]) -> Any:
        return self.all.take(rows)

    def targets(self, rows: NDArray[np.int64]) -> Any:
        return Targets((self.sign[rows] > 0).astype(np.int64), self.sign[rows][None], self.bound[rows][None])


def lasvm_settings(kernel: Kernel, **given: Any) -> LasvmSettings:
    """Settings of LASVM: one pass in random order with the defaults of LaSVC, and what is given."""
    own = {"reprocess": 1, "delta_max": np.inf, "second_order": False}
    return LasvmSettings(kernel=kernel, **(COMMON | own | given))


def learner_for(
    rows: Rows,
    kernel: Kernel,
    *,
    seed: int = 0,
    epochs: int = 1,
    finish: bool = True,
    tau: float = 1e-3,
    reprocess: int = 1,
    delta_max: float = np.inf,
    second_order: bool = False,
    cache_bytes: int = 100 << 20,
    inflight_bytes: int = 64 << 20,
    lookahead: int = 8,
    filter: bool = True,
    max_examples: int = 1 << 60,
    max_support: int = 1 << 60,
    selection: Selection = IN_RANDOM_ORDER,
) -> Learner:
    """Make a learner that has been fed."""
    settings = lasvm_settings(
        kernel,
        epochs=epochs,
        finish=finish,
        tau=tau,
        reprocess=reprocess,
        delta_max=delta_max,
        second_order=second_order,
        cache_bytes=cache_bytes,
        inflight_bytes=inflight_bytes,
        lookahead=1 if selection.exact else lookahead,
        filter=filter,
        max_examples=max_examples,
        max_support=max_support,
        selection=selection,
    )
    learner = TwoClassLearner(settings)
    order = RandomOrder((len(rows.sign),), seed)
    ids = order.rows(0, 0, len(rows.sign))
    seeds = np.concatenate([ids[rows.sign[ids] == label][:SEEDS] for label in (-1, 1)])
    learner.feed(order, seeds)
    return learner


def decomposing(
    kernel: Kernel,
    rules: PairRules | BlockRules,
    *,
    tol: float = 1e-3,
    cache_bytes: int = 50 << 20,
    seed: int = 0,
    **blocks: int,
) -> DecompositionSettings:
    """Return the settings of a batch solver that ends when no pair of examples violates by more than `tol`."""
    given = {"kernel": kernel, "cache_bytes": cache_bytes, "seed": seed}
    if isinstance(rules, PairRules):
        return PairSettings(**(COMMON | given | {"tau": tol}), rules=rules)
    return ExactSettings(**(COMMON | given | blocks | {"epochs": 0, "tau": tol / 2}), rules=rules)


def run(learner: Learner, rows: Rows, threads: int = 1, watch: Any = None) -> Learner:
    LocalExecutor(learner, rows, threads).run(watch or (lambda progress, seconds: False))
    return learner


def run_checked(learner: Learner, rows: Rows) -> None:
    """Run a learner and check after every result that its state is consistent and that the dual has not fallen."""
    duals: list[float] = []

    def watch(progress: Progress, seconds: float) -> bool:
        if progress.phase != "finishing":
            learner.expansion.check(1e-8)
        duals.append(float(progress.dual[0]))
        return False

    run(learner, rows, watch=watch)
    learner.expansion.check(1e-8)
    assert np.all(np.diff(duals) >= -1e-9 * np.abs(duals[-1]))


def coefficients(learner: Learner, count: int) -> NDArray[np.float64]:
    """Return α of all examples; it is 0 for those that are not in the expansion."""
    alpha, _, examples, _ = learner.solution()
    out = np.zeros(count)
    out[examples] = alpha[0]
    return out
