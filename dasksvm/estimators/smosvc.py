"""SMOSVC: the exact SVM, by decomposition (paper 4)."""

from functools import partial
from typing import Any, Self

from sklearn.svm import SVC

from dasksvm.data.array_types import ClassWeights, ColumnLike, RandomState, RowsLike
from dasksvm.data.coding import Coding
from dasksvm.data.sources import Examples
from dasksvm.estimators._fitting import (
    AUTO,
    CONVERGED,
    DTYPES,
    GAMMAS,
    SHAPES,
    UNLIMITED,
    LearnedClassifier,
    SharedSettings,
    violation_of,
)
from dasksvm.estimators.parameters import NONE, Rule, either, flag, integer, one_of, real, registered
from dasksvm.estimators.start import Start
from dasksvm.solver.blocks.exact_learner import ExactLearner, ExactSettings
from dasksvm.solver.blocks.learner import WORKING_SET
from dasksvm.solver.decomposition.pair_learner import PairLearner
from dasksvm.solver.decomposition.rules import SELECTIONS, STOPS, BlockRules, PairRules, PairSettings
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.registry import KERNELS

PAIR = 2
RULES: dict[str, Rule] = {
    "C": real("(0.0, inf)", lambda v: v > 0),
    "kernel": registered(KERNELS),
    "gamma": either(one_of(*GAMMAS), real("(0.0, inf)", lambda v: v > 0)),
    "degree": integer("[1, inf)", lambda v: v >= 1),
    "coef0": real("(-inf, inf)", lambda v: True),
    "tol": real("(0.0, inf)", lambda v: v > 0),
    "working_set": one_of(*SELECTIONS),
    "stop": one_of(*STOPS),
    "shrinking": flag(),
    "working_set_size": either(NONE, integer("{2} or [4, 4096]", lambda v: v == PAIR or 4 <= v <= 4096)),
    "max_iter": integer("{-1} or [1, inf)", lambda v: v == -1 or v >= 1),
    "max_time": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "decision_function_shape": one_of(*SHAPES),
    "cache_size": either(one_of(AUTO), real("(0.0, inf)", lambda v: v > 0)),
    "dtype": one_of(*DTYPES),
    "verbose": either(flag(), integer("[0, inf)", lambda v: v >= 0)),
}


class SMOSVC(LearnedClassifier):
    """Support vector classifier trained to the optimum by decomposition (paper 4).

    Passes over the training set, chunk by chunk, find violating examples and add them to the expansion, whose problem is solved
    in blocks of examples, as by `LaSVC` with `engine="blocks"` and `epochs="converged"`. X need not fit in memory, and the last
    pass confirms that no example violates. With more than two classes there is one problem for each class against the rest, or
    one for each pair of classes; they share the kernel values.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of errors: upper bound of the coefficients.
    kernel : {"linear", "poly", "rbf", "sigmoid", "laplacian"}, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
        γ of all kernels but linear. "scale" is 1 / (n_features · X.var()), of laplacian 1 / (n_features · |X - X.mean()|.mean());
        "auto" is 1 / n_features.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    tol : float, default=1e-3
        The largest violation of the optimality conditions that may remain in the whole training set.
    working_set : {"second-order", "mvp", "mg", "hmg"}, default="second-order"
        How a pair is chosen within the working set. "second-order": the example with the largest gradient and the one that gives
        the largest gain with it (LIBSVM 2.8). "mvp": the most violating pair. "mg": the pair with the largest gain that has an
        example in common with the previous pair (paper 4, section 2.3). "hmg": a hybrid of the last two (section 2.4).
    stop : {"kkt", "gain"}, default="kkt"
        When to stop: "kkt", when no pair violates by more than `tol`; "gain", for pairs chosen by "mg" or "hmg", when the step
        with the largest gain is shorter than `tol`.
    shrinking : bool, default=True
        Whether to leave out temporarily the examples that seem to stay at their bound.
    working_set_size : int, default=None
        2 for pairs of examples, as in the paper; otherwise the number of examples in the expansion that a round chooses, up to
        four times as many with a large expansion. None means 1,024.
    max_iter : int, default=-1
        Largest number of steps; -1 for no limit.
    max_time : float, default=None
        Stop after this many seconds.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        With more than two classes, train each class against the rest ("ovr"), or all pairs of classes, which vote ("ovo").
    cache_size : float or "auto", default="auto"
        Memory for kernel values, in megabytes. "auto" is 1000 for pairs of examples and on clusters, and otherwise a third of the
        machine's memory, of which no more is used than there are values to keep. With blocks it has no influence on the model.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Seed for the order of the examples.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        As in `LaSVC`.

    Attributes
    ----------
    classes_, support_, support_vectors_, n_support_, dual_coef_, intercept_, n_features_in_, feature_names_in_
        As in `LaSVC`.
    model_, dual_objective_
        As in `LaSVC`.
    n_iter_ : int
        Number of steps of all problems together.
    kernel_evaluations_ : int
        Number of kernel values computed. Where values are kept, it depends on `cache_size`, and on whether there are workers on
        other machines.
    history_ : list of dict
        Entries during the run: the examples seen, the size of the expansion (`support_vectors`), the uncertainty of the bias
        (`delta`), the dual objective, the steps, the time in seconds and the number of kernel values.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import SMOSVC
    >>> X, y = make_moons(1000, noise=0.2, random_state=0)
    >>> model = SMOSVC(C=10, gamma=1.0, random_state=0).fit(X, y)
    >>> primal, dual, gap = model.duality_gap(X, y)
    >>> gap < 2e-3 * dual
    True
    """

    _parameter_rules = RULES

    def __init__(
        self,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        *,
        tol: float = 1e-3,
        working_set: str = "second-order",
        stop: str = "kkt",
        shrinking: bool = True,
        working_set_size: int | None = None,
        max_iter: int = -1,
        max_time: float | None = None,
        class_weight: ClassWeights = None,
        decision_function_shape: str = "ovr",
        cache_size: float | str = AUTO,
        dtype: str = "float32",
        random_state: RandomState = None,
        verbose: int = 0,
        client: Any = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.working_set = working_set
        self.stop = stop
        self.shrinking = shrinking
        self.working_set_size = working_set_size
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.decision_function_shape = decision_function_shape
        self.cache_size = cache_size
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.client = client

    def fit(
        self,
        X: RowsLike,
        y: ColumnLike | None = None,
        sample_weight: ColumnLike | None = None,
        start: LearnedClassifier | SVC | None = None,
    ) -> Self:
        """Train to the optimum, from scratch or from the coefficients of another model.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
            Dask arrays are computed chunk by chunk; their chunks are visited in random order.
        y : array of shape (n,)
            Labels of any type that can be sorted. Must be None for a data set, which has its own labels.
        sample_weight : array of shape (n,), optional
            Weights of the examples, which multiply C.
        start : estimator, optional
            A model trained on the same rows in the same order, with any kernel and C: an estimator of this package with the same
            classes and problems, which may be this one, or scikit-learn's `SVC`. Its coefficients are clipped to the
            bounds, and the positive or the negative ones are scaled down so that their sum is 0. The optimum does not depend on
            it, but is reached sooner from a model that is close to it.

        Returns
        -------
        self
            The estimator. If the fit fails or is interrupted, the estimator is unfitted.
        """
        try:
            known = None if start is None else Start.of(start)
        except ValueError:
            self._clear_fitted()
            raise
        self._fit(X, y, sample_weight, (), None if known is None else partial(self._start_from, known))
        return self

    def _start_from(self, start: Start, learner: Learner, examples: Examples) -> None:
        assert isinstance(learner, PairLearner | ExactLearner)
        learner.start = StartingPoint(*start.place(examples, self.classes_, self._votes))

    def _passes(self) -> int:
        return 1 if self.working_set_size == PAIR else CONVERGED

    def _shortfall(self, learner: Learner) -> str:
        violation = violation_of(learner)
        if isinstance(learner, PairLearner) and learner.stuck:
            return (
                f"is stuck: working_set={self.working_set!r} finds no pair with a gain, although {violation}; "
                "working_set='hmg' would find one."
            )
        if self.max_iter != -1 and learner.ended_early():
            assert isinstance(learner, PairLearner | ExactLearner)
            # A bias that the support vectors do not determine is found from all examples.
            all_known = self.working_set_size == PAIR or bool(learner.undetermined.any())
            where = "" if all_known else "among the examples in its expansion, "
            return f"stopped after max_iter={self.max_iter} steps; {where}{violation}."
        if self.stop == "gain":
            return f"stopped because the steps became shorter than tol={self.tol}; {violation}."
        return self._describe_violation(learner)

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        if self.stop != "kkt" and self.working_set_size != PAIR:
            raise ValueError(
                f"stop={self.stop!r} needs working_set_size=2: with larger blocks, training ends when no pair violates."
            )
        chosen, shrinking = self.working_set, bool(self.shrinking)
        limit = UNLIMITED if self.max_iter == -1 else int(self.max_iter)
        if self.working_set_size == PAIR:
            return PairSettings(
                rules=PairRules(chosen, self.stop, shrinking, limit, rows=2), tau=self._tolerance, **shared
            )
        return ExactSettings(
            rules=BlockRules(chosen, shrinking, limit),
            tau=self._tolerance / 2,
            working_set=WORKING_SET if self.working_set_size is None else int(self.working_set_size),
            **shared,
        )
