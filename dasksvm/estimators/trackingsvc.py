"""TrackingSVC: the tracking algorithms of paper 3."""

from typing import Any

from dasksvm.data.coding import Coding
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.lasvc import RULES as SHARED
from dasksvm.estimators.parameters import NONE, Rule, check_unused, either, flag, integer, one_of
from dasksvm.solver.engine.selection import RANDOM
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.registry import look_up
from dasksvm.solver.unbiased.batch_ascent import AscentSettings
from dasksvm.solver.unbiased.tracking_learner import TrackingSettings
from dasksvm.solver.unbiased.tracking_steps import TrackingRules

# Whether members with a coefficient alone have a gradient; whether all examples are taken in before the first step.
GRADIENTS = {"all": False, "support": True}
SOLVERS = {"online": False, "batch": True}
OTHERS = ("tol", "reprocess", "delta_max", "second_order", "finish")
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
    """Support vector classifier that tracks the optimum of what it has seen, by coordinate steps at random (paper 3).

    There is no bias. After each example so many coefficients are picked at random, and each is moved to its optimum. On average
    over a pass the model stays within a tolerance of the optimum of all examples seen, which more steps make smaller, whatever
    the order in which they come.

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
    steps : int, default=10
        K, the picks after each example.
    process : bool, default=True
        Whether a step in the new example comes first (algorithm 2), or not (algorithm 1).
    average : bool, default=True
        Whether the model is the mean of the last example's K iterates, for which the theorems are, or the last one.
    gradients : {"all", "support"}, default="support"
        "all" keeps every example with its gradient, as the theorems have it: it takes as many kernel rows as there are examples.
        "support" keeps those with a coefficient; picks of others are passed over (sections 5.1 and 5.2). It needs `process`.
    solver : {"online", "batch"}, default="online"
        "batch" takes all examples in before the first pick, and then makes K picks for each (section 6.3). It keeps all
        gradients, and gives the last iterate: other values of `process`, `average` and `gradients` than the defaults are refused.
    selection : {"random", "gradient", "active", "autoactive"}, default="random"
        The teacher, as in `LaSVC`; of the batch solver "random" only.
    candidates : int, default=50
        Examples that one is chosen from.
    epochs : int, default=1
        Passes over the data.
    max_examples, max_support : int, default=None
        End after so many examples, or, online, when a problem has so many support vectors.
    max_time : float, default=None
        End after so many seconds; the batch solver takes in no more examples then.
    class_weight : dict or "balanced", default=None
        Weights of the classes; they multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Of more than two classes: each against the rest, or the pairs of them, which vote.
    cache_size : float, default=1000
        Megabytes for kernel rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Decides the order of the examples and the picks. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        As in `LaSVC`.

    Attributes
    ----------
    classes_, support_, support_vectors_, n_support_, dual_coef_, n_iter_, n_features_in_, dual_objective_, model_
        As in `LaSVC`; n_iter_ counts the picks that moved something.
    feature_names_in_
        As in `LaSVC`.
    intercept_ : ndarray of shape (P,)
        0.
    kernel_evaluations_ : int
    history_ : list of dict
        What was seen, the members, the dual of the last iterate, seconds and kernel values, after every batch. `gap` is primal
        minus dual of the last iterate, divided by C t (in general by Σ C_i), and `mean_gap` its mean over the examples so far,
        each after its steps: over all t examples with `gradients="all"`, of the members alone with "support". With "all", the rbf
        kernel and one C for all, `bound` is what theorem 2 or 3 bounds the mean by, with the present dual.

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
    _first = 0

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

    def _settings(self, width: int, variance: float, epochs: int, coding: Coding) -> Settings:
        batch, support = look_up(SOLVERS, "solver", self.solver), look_up(GRADIENTS, "gradients", self.gradients)
        if batch:
            check_unused(self, ("process", "average", "gradients"), f"solver={self.solver!r}")
        if support and not (self.process or batch):
            raise ValueError("gradients 'support' needs process=True: an example would never get a coefficient.")
        if batch and self.selection != RANDOM:
            raise ValueError(
                f"selection {self.selection!r} is for solver 'online' only: 'batch' takes all examples in."
            )
        common = self._common(width, variance, epochs, coding.problems)
        if batch:
            return AscentSettings(steps=int(self.steps), **common)
        rules = TrackingRules(int(self.steps), bool(self.process), support, bool(self.average))
        return TrackingSettings(rules=rules, **common)
