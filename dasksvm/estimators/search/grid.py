"""Search for C and γ on a grid that is extended towards its best point (paper 5, section 4.3.2)."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dasksvm.data.array_types import ColumnLike, RandomState, RowsLike
from dasksvm.data.chunked import is_dask
from dasksvm.data.dataset import Dataset
from dasksvm.estimators.lasvc import LaSVC
from dasksvm.estimators.parameters import check_parameters, flag, integer
from dasksvm.estimators.problem import open_if_path
from dasksvm.estimators.search.gamma import jaakkola_gamma
from dasksvm.solver.engine.criteria import RANDOM
from dasksvm.solver.kernels.registry import KERNELS

# Mean scores are compared after rounding to this many digits, since equal errors can have means that differ by rounding.
DIGITS = 9
RULES = {
    "steps": integer("[0, inf)", lambda v: v >= 0),
    "folds": integer("[2, inf)", lambda v: v >= 2),
    "max_shifts": integer("[0, inf)", lambda v: v >= 0),
    "refit": flag(),
}


class _Point(NamedTuple):
    """A point of the grid; γ is None if it is not searched."""

    C: float
    gamma: float | None

    @property
    def parameters(self) -> dict[str, float]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class _FoldResult(NamedTuple):
    """The result of a point on one fold; points trained in one run have equal shares of its seconds and kernel values."""

    score: float
    seconds: float
    evaluations: float


Grid = dict[_Point, list[_FoldResult]]
Measure = Callable[[float | None, list[float]], None]


def _offers(name: str) -> Callable[[Any], bool]:
    def check(search: Any) -> bool:
        getattr(search.estimator, name)
        return True

    return check


class ShiftingGridSearch(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Choose C and γ by cross-validation on a grid that shifts until its best point is inside (paper 5, section 4.3.2).

    Among points with equal errors, the one with the lowest C is chosen, then the one with the lowest γ. While the best point is
    on an edge of the grid, the row or column beyond that edge is added and its points are trained. The search ends when the best
    point is inside the grid, or when a shift finds no smaller error. With the linear kernel only C is searched: first on the
    grid of `C`, then on the values C₀ · 2^-steps to C₀ · 2^steps around its best value C₀.

    On each fold, all new values of C at a γ are trained in one run that shares the kernel rows, if the estimator is a `LaSVC`
    with random selection and without `max_support` and `max_time`, which would apply to all values together. With
    `epochs="converged"`, each model equals that of a separate run up to `tol`; with fewer epochs it may differ more.

    Parameters
    ----------
    estimator : LaSVC, or another classifier with parameters C and gamma
        It is not changed: clones are fitted.
    C : sequence of float, default=(0.1, 1, 10, 100, 1000)
        A shift adds a value beyond the edge, with the ratio of the two values next to it. A single value is never shifted.
    gamma : sequence of float, default=None
        The same for γ. With None, the values are γ_J · 2^-steps to γ_J · 2^steps, with γ_J from `jaakkola_gamma` for the
        estimator's kernel; the heuristic is meant for rbf and laplacian.
    steps : int, default=2
        Number of steps to each side if a grid is made around a value.
    folds : int, default=5
        Number of folds, which are stratified and shuffled.
    max_shifts : int, default=10
        Number of shifts after which the search stops with a warning.
    refit : bool, default=True
        Whether to train on all rows with the best parameters.
    random_state : int, RandomState or None, default=None
        Seed for the folds and for the sample of `jaakkola_gamma`.

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        Mean accuracy on the test folds.
    best_estimator_ : estimator
        Fitted on all rows; only with `refit`.
    cv_results_ : dict of arrays
        A value for each point, in order of C and γ: params, param_C, param_gamma (if it is searched), mean_test_score,
        std_test_score, rank_test_score, mean_fit_time, and kernel_evaluations, summed over the folds. Points that were trained
        in one run have equal shares of its seconds and kernel values, so that the sum over the points is what was computed; nan
        if the estimator does not count kernel values.
    classes_ : ndarray of shape (c,)
    n_splits_ : int
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import LaSVC, ShiftingGridSearch
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> search = ShiftingGridSearch(LaSVC(random_state=0), C=(1, 10), steps=1, folds=3, random_state=0).fit(X, y)
    >>> sorted(search.best_params_), search.best_score_ > 0.9
    (['C', 'gamma'], True)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        C: Sequence[float] = (0.1, 1, 10, 100, 1000),
        gamma: Sequence[float] | None = None,
        steps: int = 2,
        folds: int = 5,
        max_shifts: int = 10,
        refit: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.C = C
        self.gamma = gamma
        self.steps = steps
        self.folds = folds
        self.max_shifts = max_shifts
        self.refit = refit
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse input is accepted if the estimator accepts it."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    def fit(self, X: RowsLike, y: ColumnLike) -> Self:
        """Search for the best parameters and, with `refit`, train on all rows with them.

        Parameters
        ----------
        X : ndarray or csr_matrix of shape (n, d)
            Rows in memory, since every point trains on every fold. For larger data, search on a sample.
        y : array of shape (n,)

        Returns
        -------
        ShiftingGridSearch
        """
        check_parameters(self, RULES)
        if isinstance(open_if_path(X), Dataset) or is_dask(X) or is_dask(y):
            raise ValueError(
                "ShiftingGridSearch needs rows in memory, since every point trains on every fold: pass a sample, such as "
                "data.rows(ids) and data.labels(ids) of a data set, or X[:20000].compute(); then fit an estimator with "
                "best_params_ on all rows."
            )
        rows, labels = validate_data(self, X, y, accept_sparse="csr", dtype="numeric")
        check_classification_targets(labels)
        self.__dict__.pop("best_estimator_", None)
        random = check_random_state(self.random_state)
        Cs, gammas = _ascending("C", self.C), self._gammas(rows, labels, random)
        splitter = StratifiedKFold(self.folds, shuffle=True, random_state=random.randint(1 << 31))
        splits = list(splitter.split(rows, labels))
        found: Grid = {}

        def measure(gamma: float | None, Cs: list[float]) -> None:
            estimator = clone(self.estimator)
            estimator = estimator if gamma is None else estimator.set_params(gamma=gamma)
            for sides in splits:
                train, test = ((rows[side], labels[side]) for side in sides)
                for point, result in _fold(estimator, gamma, Cs, train, test):
                    found.setdefault(point, []).append(result)

        best = self._explore(Cs, gammas, found, measure)
        if gammas == [None] and len(Cs) > 1:
            best = self._explore(_around(best.C, self.steps), gammas, found, measure)
        if self.refit:
            self.best_estimator_ = clone(self.estimator).set_params(**best.parameters).fit(X, y)
        self.best_params_ = best.parameters
        self.best_score_ = float(np.mean([one.score for one in found[best]]))
        self.cv_results_ = _table(found)
        self.classes_, self.n_splits_ = np.unique(labels), len(splits)
        return self

    def _gammas(self, X: Any, y: NDArray[Any], random: Any) -> Sequence[float | None]:
        """Make the grid of γ; [None] if γ is not searched."""
        parameters = self.estimator.get_params()
        if "C" not in parameters:
            raise ValueError(f"{type(self.estimator).__name__} has no parameter C to search.")
        # Kernels that this package does not know, such as those of other packages' estimators, are assumed to use γ.
        kernel = parameters.get("kernel")
        unused = kernel in KERNELS and "gamma" not in KERNELS[kernel].parameters
        if "gamma" not in parameters or unused:
            if self.gamma is not None:
                raise ValueError(f"gamma was given, but {self.estimator!r} does not use it.")
            return [None]
        if self.gamma is not None:
            return _ascending("gamma", self.gamma)
        known = kernel if kernel in KERNELS else "rbf"
        return _around(jaakkola_gamma(X, y, kernel=known, random_state=random), self.steps)

    def _explore(self, Cs: list[float], gammas: Sequence[float | None], found: Grid, measure: Measure) -> _Point:
        """Measure a grid, and extend it while the best point is on an edge and its error decreases."""
        shifts, last = 0, np.inf
        while True:
            for gamma in gammas:
                new = [C for C in Cs if _Point(C, gamma) not in found]
                if new:
                    measure(gamma, new)
            best = min(found, key=lambda point: (_error(found[point]), point.C, point.gamma or 0.0))
            error = _error(found[best])
            wider = _extended(Cs, best.C), _extended(gammas, best.gamma)
            if wider == (Cs, gammas) or error >= last:
                return best
            if shifts == self.max_shifts:
                warnings.warn(
                    f"the best point {best.parameters} is still on the edge of the grid after max_shifts={shifts} shifts.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
                return best
            (Cs, gammas), shifts, last = wider, shifts + 1, error

    # Methods of the best estimator

    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_", msg="This %(name)s is not fitted, or was fitted with refit=False.")
        return self.best_estimator_

    @available_if(_offers("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: RowsLike) -> Any:
        """Predict with the best estimator; if it is one of this package, also for Dask arrays and data sets."""
        return self._best().predict(X)

    @available_if(_offers("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: RowsLike) -> Any:
        """Compute the decision values of the best estimator."""
        return self._best().decision_function(X)

    @available_if(_offers("score"))  # type: ignore[untyped-decorator]
    def score(self, X: RowsLike, y: ColumnLike | None = None) -> float:
        """Compute the accuracy of the best estimator."""
        return float(self._best().score(X, y))


def _fold(
    estimator: Any, gamma: float | None, Cs: list[float], train: tuple[Any, Any], test: tuple[Any, Any]
) -> list[tuple[_Point, _FoldResult]]:
    """Train for each C on one part and score on the other; in one run if no budget or selection applies to all C together."""
    points = [_Point(C, gamma) for C in Cs]
    start = time.perf_counter()
    if (
        isinstance(estimator, LaSVC)
        and estimator.selection == RANDOM
        and estimator.max_support is None
        and estimator.max_time is None
    ):
        models, evaluations = estimator._fit_path(*train, Cs)
        shares = (time.perf_counter() - start) / len(Cs), evaluations / len(Cs)
        scores = [float(np.mean(model.predict(test[0]) == test[1])) for model in models]
        return [(point, _FoldResult(score, *shares)) for point, score in zip(points, scores, strict=True)]
    results = []
    for point in points:
        start = time.perf_counter()
        fitted = clone(estimator).set_params(C=point.C).fit(*train)
        seconds, counted = time.perf_counter() - start, float(getattr(fitted, "kernel_evaluations_", np.nan))
        results.append((point, _FoldResult(float(fitted.score(*test)), seconds, counted)))
    return results


def _error(results: list[_FoldResult]) -> float:
    return float(np.round(1.0 - np.mean([one.score for one in results]), DIGITS))


def _ascending(name: str, values: Any) -> list[float]:
    grid = np.unique(np.asarray(values, np.float64))
    if not grid.size or not np.all(np.isfinite(grid)) or grid[0] <= 0:
        raise ValueError(f"{name} must be positive numbers, got {values!r}.")
    return [float(value) for value in grid]


def _around(value: float, steps: int) -> list[float]:
    return [value * 2.0**step for step in range(-steps, steps + 1)]


def _extended(values: Any, best: float | None) -> Any:
    """Extend a grid by a value beyond its edge if the best value is on that edge."""
    if len(values) > 1 and best == values[0]:
        return [values[0] / (values[1] / values[0]), *values]
    if len(values) > 1 and best == values[-1]:
        return [*values, values[-1] * (values[-1] / values[-2])]
    return values


def _table(found: Grid) -> dict[str, Any]:
    """Return the results of all points in order of C and γ, as `cv_results_`."""
    points = sorted(found, key=lambda point: (point.C, point.gamma or 0.0))
    scores = np.array([[one.score for one in found[point]] for point in points])
    table: dict[str, Any] = {"params": [point.parameters for point in points]}
    for name in points[0].parameters:
        table[f"param_{name}"] = np.array([point.parameters[name] for point in points])
    return table | {
        "mean_test_score": scores.mean(axis=1),
        "std_test_score": scores.std(axis=1),
        "rank_test_score": rankdata([_error(found[point]) for point in points], method="min").astype(np.int32),
        "mean_fit_time": np.array([np.mean([one.seconds for one in found[point]]) for point in points]),
        "kernel_evaluations": np.array([np.sum([one.evaluations for one in found[point]]) for point in points]),
    }
