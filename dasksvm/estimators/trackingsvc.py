"""TrackingSVC: the tracking algorithms of paper 3."""

from typing import Any

from dasksvm.data.array_types import ClassWeights, RandomState
from dasksvm.data.coding import Coding
from dasksvm.estimators._fitting import SharedSettings
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.lasvc import RULES as SHARED
from dasksvm.estimators.parameters import NONE, Rule, check_unused, either, flag, integer, one_of
from dasksvm.solver.engine.criteria import RANDOM
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.registry import look_up
from dasksvm.solver.unbiased.batch_ascent import AscentSettings
from dasksvm.solver.unbiased.tracking_learner import TrackingSettings
from dasksvm.solver.unbiased.tracking_steps import TrackingRules

# Values of `gradients`: whether only members with a coefficient have a gradient.
GRADIENTS = {"all": False, "support": True}
# Values of `solver`: whether all examples are added before the first step.
SOLVERS = {"online": False, "batch": True}
OTHERS = ("engine", "tol", "reprocess", "delta_max", "second_order", "finish")
RULES: dict[str, Rule] = {
    **{name: rule for name, rule in SHARED.items() if name not in OTHERS},
    "steps": integer("[1, inf)", lambda v: v >= 1),
    "process": flag(),
    "average": flag(),
    "gradients": one_of(*GRADIENTS),
    "solver": one_of(*SOLVERS),
    "epochs": integer("[1, inf)", lambda v: v >= 1),
    "max_support": either(NONE, integer("[1, inf)", lambda v: v >= 1)),
}


class TrackingSVC(OnlineClassifier):
    """Support vector classifier that tracks the optimum of the examples seen so far by random coordinate steps (paper 3).

    There is no bias. After each example, `steps` coefficients are picked at random and each is moved to its optimum. On average
    over a pass, the model stays within a tolerance of the optimum of all examples seen, for any order of the examples; more
    steps make the tolerance smaller.

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
    steps : int, default=10
        K, the number of random picks after each example.
    process : bool, default=True
        Whether the new example itself gets a step first (algorithm 2) or not (algorithm 1).
    average : bool, default=True
        Whether the model is the mean of the last example's K iterates, which the theorems are about, or the last iterate.
    gradients : {"all", "support"}, default="support"
        "all" keeps every example with its gradient, as the theorems require; this takes as many kernel rows as there are
        examples. "support" keeps only examples with a coefficient and skips picks of others (sections 5.1 and 5.2); it requires
        `process=True`.
    solver : {"online", "batch"}, default="online"
        "batch" adds all examples before the first pick, and then makes K picks for each example (section 6.3). It keeps all
        gradients and returns the last iterate; `process`, `average` and `gradients` must have their default values.
    selection : {"random", "gradient", "active", "autoactive"}, default="random"
        How the next example is chosen, as in `LaSVC`; the batch solver accepts "random" only.
    candidates : int, default=50
        Number of random examples from which the next one is chosen.
    epochs : int, default=1
        Passes over the data.
    max_examples, max_support : int, default=None
        Stop after this many examples or, with the online solver, when a problem has this many support vectors.
    max_time : float, default=None
        Stop after this many seconds; the batch solver then adds no more examples.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        With more than two classes, train each class against the rest ("ovr"), or all pairs of classes, which vote ("ovo").
    cache_size : float, default=1000
        Memory for kernel rows, in megabytes.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Seed for the order of the examples and the picks. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        As in `LaSVC`.

    Attributes
    ----------
    classes_, support_, support_vectors_, n_support_, dual_coef_, n_iter_, n_features_in_, dual_objective_, model_
        As in `LaSVC`; `n_iter_` counts the picks that changed a coefficient.
    feature_names_in_
        As in `LaSVC`.
    intercept_ : ndarray of shape (P,)
        Zero.
    kernel_evaluations_ : int
        Number of kernel values computed.
    history_ : list of dict
        An entry for each batch: the examples seen, the size of the expansion (`support_vectors`), the dual objective of the last
        iterate, the time in seconds and the number of kernel values. `gap` is the primal minus the dual objective of the last
        iterate, divided by C t (in general by Σ C_i), and `mean_gap` is its mean over the examples so far, each measured after
        its steps. With `gradients="all"` the gap is that of all t examples, with "support" that of the expansion only. With
        "all", the rbf kernel and the same C for all examples, `bound` is the bound of the mean gap by theorem 2 or 3, with the
        current dual objective.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import TrackingSVC
    >>> X, y = make_moons(500, noise=0.2, random_state=0)
    >>> model = TrackingSVC(C=10, steps=20, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.93
    True
    >>> exact = TrackingSVC(C=10, steps=20, gradients="all", random_state=0).fit(X, y)
    >>> exact.history_[-1]["mean_gap"] < exact.history_[-1]["bound"]
    True
    """

    _parameter_rules = RULES
    _initial_per_class = 0

    def __init__(
        self,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        *,
        steps: int = 10,
        process: bool = True,
        average: bool = True,
        gradients: str = "support",
        solver: str = "online",
        selection: str = "random",
        candidates: int = 50,
        epochs: int = 1,
        max_examples: int | None = None,
        max_support: int | None = None,
        max_time: float | None = None,
        class_weight: ClassWeights = None,
        decision_function_shape: str = "ovr",
        cache_size: float = 1000,
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
        self.steps = steps
        self.process = process
        self.average = average
        self.gradients = gradients
        self.solver = solver
        self.selection = selection
        self.candidates = candidates
        self.epochs = epochs
        self.max_examples = max_examples
        self.max_support = max_support
        self.max_time = max_time
        self.class_weight = class_weight
        self.decision_function_shape = decision_function_shape
        self.cache_size = cache_size
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.client = client

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        batch, support = look_up(SOLVERS, "solver", self.solver), look_up(GRADIENTS, "gradients", self.gradients)
        if batch:
            check_unused(self, ("process", "average", "gradients"), f"solver={self.solver!r}")
        if support and not (self.process or batch):
            raise ValueError(
                "gradients 'support' needs process=True: otherwise no example would ever get a coefficient."
            )
        if batch and self.selection != RANDOM:
            raise ValueError(f"selection {self.selection!r} is for solver 'online' only: 'batch' adds all examples.")
        if batch:
            return AscentSettings(steps=int(self.steps), **shared)
        rules = TrackingRules(int(self.steps), bool(self.process), support, bool(self.average))
        return TrackingSettings(rules=rules, **shared)
