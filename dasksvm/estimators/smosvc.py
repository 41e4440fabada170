"""SMOSVC: the exact SVM, by decomposition (paper 4)."""

from functools import partial
from typing import Any, Self

from dasksvm.data.coding import Coding
from dasksvm.data.sources import Examples
from dasksvm.estimators._fitting import DTYPES, GAMMAS, SHAPES, UNLIMITED, LearnedClassifier, violation_of
from dasksvm.estimators.parameters import NONE, Rule, either, flag, integer, one_of, real
from dasksvm.estimators.start import Start
from dasksvm.solver.decomposition.batch_learner import BatchLearner
from dasksvm.solver.decomposition.rules import SELECTIONS, STOPS, BlockRules, BlockSettings, PairRules, PairSettings
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.kernel import KERNELS

PAIR = 2
RULES: dict[str, Rule] = {
    "C": real("(0.0, inf)", lambda v: v > 0),
    "kernel": one_of(*KERNELS),
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
    "cache_size": real("(0.0, inf)", lambda v: v > 0),
    "dtype": one_of(*DTYPES),
    "verbose": either(flag(), integer("[0, inf)", lambda v: v >= 0)),
}


class SMOSVC(LearnedClassifier):
    """Support vector classifier at the optimum: decomposition by second order or maximum gain (paper 4).

    The problem restricted to the examples in play is solved in blocks whose kernel rows come as tiles; looks at the whole set,
    chunk by chunk, bring in who violates. So X need not fit in memory, and the last look says of every example that it is at
    rest. Several classes make a problem for each, against the rest, or for each pair, over one set of kernel rows.

    Parameters
    ----------
    C : float, default=1.0
        Bound of the coefficients.
    kernel : {"linear", "poly", "rbf", "sigmoid"}, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid; "scale" is 1 / (n_features · X.var()), "auto" 1 / n_features.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    tol : float, default=1e-3
        The largest violation of the optimum that is left in the whole training set.
    working_set : {"second-order", "mvp", "mg", "hmg"}, default="second-order"
        How a pair is chosen within the working set: by the largest gain with the largest gradient (LIBSVM 2.8), the most
        violating pair, maximum gain with one of the pair before (paper 4, section 2.3), or the hybrid of the last two (section
        2.4).
    stop : {"kkt", "gain"}, default="kkt"
        Where no pair violates by more than `tol`, or, in pairs by "mg" and "hmg", where the step of largest gain is shorter.
    shrinking : bool, default=True
        Whether to leave out, for a while, examples that seem to stay at their bound.
    working_set_size : int, default=None
        2 for the pairs of the paper, else of a block of examples whose rows come as a tile; None for 1,024.
    max_iter : int, default=-1
        Steps at most; -1 for no limit.
    max_time : float, default=None
        End after so many seconds.
    class_weight : dict or "balanced", default=None
        Weights of the classes; they multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Of more than two classes: each against the rest, or the pairs of them, which vote.
    cache_size : float, default=1000
        Megabytes for kernel rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Decides the order of the examples.
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
        Steps, over all problems.
    kernel_evaluations_ : int
    history_ : list of dict
        Examples met, members, δ, the dual, steps, seconds and kernel values, on the way.

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
        class_weight: Any = None,
        decision_function_shape: str = "ovr",
        cache_size: float = 1000,
        dtype: str = "float32",
        random_state: Any = None,
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, start: Any = None) -> Self:
        """Train to the optimum, from scratch or from the coefficients of another model.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
            Dask arrays are computed chunk by chunk; their chunks are visited in random order.
        y : array of shape (n,)
            Labels of any type that sorts; None for a data set, which has its own.
        sample_weight : array of shape (n,), optional
            Multiplies C.
        start : estimator, optional
            Trained on the same rows in the same order, with any kernel and C: an estimator of this package with the same classes
            and problems, this one too, or of two classes an `SVC` of scikit-learn. What of its coefficients does not fit into the
            boxes is cut off, and the larger side is scaled down until they add up to 0. The optimum is the same; one that is near
            is reached sooner.

        Returns
        -------
        self
            The estimator. A fit that fails or is interrupted leaves it unfitted.
        """
        try:
            known = None if start is None else Start.of(start)
        except ValueError:
            self._forget()
            raise
        self._fit(X, y, sample_weight, (), None if known is None else partial(self._begin_at, known))
        return self

    def _begin_at(self, start: Start, learner: Learner, examples: Examples) -> None:
        assert isinstance(learner, BatchLearner)
        pairwise = self._pairwise and len(self.classes_) > 2
        learner.begin_at(*start.place(examples, self.classes_, pairwise))

    def _passes(self) -> int:
        return 1

    def _shortfall(self, learner: Learner) -> str:
        assert isinstance(learner, BatchLearner)
        violation = violation_of(learner)
        if learner.stuck:
            return f"is stuck: working_set={self.working_set!r} finds no gain, though {violation}; 'hmg' would."
        if self.max_iter != -1 and learner.ended_early():
            return f"ended after max_iter={self.max_iter} steps; {violation}."
        if self.stop == "gain":
            return f"ended where steps are shorter than tol={self.tol}; {violation}."
        return self._missed(learner)

    def _settings(self, width: int, variance: float, epochs: int, coding: Coding) -> Settings:
        if self.stop != "kkt" and self.working_set_size != PAIR:
            raise ValueError(f"stop={self.stop!r} needs working_set_size=2: blocks end where no pair violates.")
        common = self._common(width, variance, epochs, coding.problems) | {"tau": self._tolerance}
        chosen, shrinking = self.working_set, bool(self.shrinking)
        limit = UNLIMITED if self.max_iter == -1 else int(self.max_iter)
        if self.working_set_size == PAIR:
            return PairSettings(rules=PairRules(chosen, self.stop, shrinking, limit, rows=2), **common)
        size = 0 if self.working_set_size is None else int(self.working_set_size)
        return BlockSettings(rules=BlockRules(chosen, size, shrinking, limit), **common)
