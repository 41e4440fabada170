"""MulticlassSVC: the all-in-one machines of paper 5."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.coding import Coding
from dasksvm.data.sources import Examples, Form
from dasksvm.estimators._fitting import CONVERGED
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.certificate import Judge
from dasksvm.estimators.lasvc import RULES as SHARED
from dasksvm.estimators.parameters import Rule, check_unused, flag, one_of
from dasksvm.estimators.problem import Problem
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import Targets
from dasksvm.solver.multiclass import online
from dasksvm.solver.multiclass.learner import MachineLearner, MachineSettings
from dasksvm.solver.multiclass.moves import loads
from dasksvm.solver.multiclass.scan import violation
from dasksvm.solver.multiclass.steps import (
    RANDOM_PATTERN_S2DO_ALL,
    RANDOM_PATTERN_S2DO_PATTERN,
    S2DO_ALL,
)
from dasksvm.solver.multiclass.structure import MACHINES, Machine, losses, machine
from dasksvm.solver.registry import look_up


class Solver(NamedTuple):
    """What a solver stands for.

    Attributes
    ----------
    larank : bool
        Whether its steps are LaRank's.
    batch : bool
        Whether patterns are taken in first and solved for then.
    unused : tuple of str
        Parameters that it makes no use of.
    """

    larank: bool
    batch: bool
    unused: tuple[str, ...]


SOLVERS = {
    "online": Solver(larank=False, batch=False, unused=()),
    "batch": Solver(larank=False, batch=True, unused=("working_set", "schedule", "old_new")),
    "larank": Solver(larank=True, batch=False, unused=("working_set", "old_new")),
}
# Whether the next kind of step is drawn by what each achieved.
SCHEDULES = {"adaptive": True, "fixed": False}
WORKING_SETS = {
    "all": S2DO_ALL,
    "random-pattern": RANDOM_PATTERN_S2DO_ALL,
    "within-pattern": RANDOM_PATTERN_S2DO_PATTERN,
}
OWN = ("C", "kernel", "gamma", "degree", "coef0", "tol", "epochs", "finish", "max_examples", "max_support", "max_time")
RULES: dict[str, Rule] = {
    **{name: SHARED[name] for name in (*OWN, "cache_size", "dtype", "verbose")},
    "machine": one_of(*MACHINES),
    "solver": one_of(*SOLVERS),
    "working_set": one_of(*WORKING_SETS),
    "schedule": one_of(*SCHEDULES),
    "old_new": flag(),
}


class MulticlassSVC(OnlineClassifier):
    """One machine for all classes: Weston and Watkins, Crammer and Singer, Lee, Lin and Wahba (paper 5, section 2.2.7).

    All classes are in one problem, without bias: margins are ½(f_y - f_c) ("ww", "cs") or -f_c with Σ_c f_c = 0 ("llw"), their
    targets are 1, and a loss is the sum ("ww", "llw") or the largest ("cs") of what they lack.

    Parameters
    ----------
    C : float, default=1.0
        Bound of the coefficients, in the units of paper 5.
    kernel : {"linear", "poly", "rbf", "sigmoid"}, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid; "scale" is 1 / (n_features · X.var()), "auto" 1 / n_features.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    machine : {"cs", "ww", "llw"}, default="cs"
    solver : {"online", "batch", "larank"}, default="online"
        "online": a step in each new pattern, and steps among those that are there, as the schedule says (paper 5, algorithm 7).
        "batch": the machine's optimum: passes that take in what violates, each followed by S2DO in blocks. "larank": the steps
        of LaRank (paper 5, section 2.2.8), for "cs"; its C is a quarter of this one.
    working_set : {"random-pattern", "all", "within-pattern"}, default="random-pattern"
        Online, of the steps among old patterns: the first variable is that of a random pattern and the second any
        (RANDOM_PATTERN_S2DO_ALL), both are any (S2DO_ALL), or both are of a random pattern (RANDOM_PATTERN_S2DO_PATTERN).
        The solvers "batch" and "larank" have no such choice, and refuse another value than the default.
    schedule : {"adaptive", "fixed"}, default="adaptive"
        Online, the next kind of step: drawn by what each achieved for the values it touched, or one after the other. The solver
        "batch" refuses another value than the default.
    old_new : bool, default=False
        Online, whether there are steps in one new and one old pattern too; they add little (paper 5, section 4.2.1). The solvers
        "batch" and "larank" have no such steps, and refuse True.
    tol : float, default=1e-3
        ε: what violates by less is left alone.
    epochs : int or "converged", default=1
        Online passes over the data; "converged" goes on to the optimum. The batch solver always does.
    finish : bool, default=False
        Whether an online run ends with the machine's optimum over the support patterns that it has found.
    max_examples, max_support : int, default=None
        End the iterations after so many examples, or when there are so many support patterns.
    max_time : float, default=None
        End them after so many seconds; what is being solved for the batch solver is solved first.
    class_weight : dict or "balanced", default=None
        Weights of the classes; they multiply C.
    cache_size : float, default=1000
        Megabytes for kernel rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Decides the order of the examples and of the random patterns. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        As for `LaSVC`.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    support_ : ndarray of shape (n_SV,)
        Rows of the support patterns in X; after `partial_fit`, counted over all blocks.
    support_vectors_ : ndarray or csr_matrix of shape (n_SV, n_features)
    n_support_ : ndarray of shape (c,)
        Support patterns of each class.
    alpha_ : ndarray of shape (c, n_SV)
        Dual variables of each pattern.
    dual_coef_ : ndarray of shape (c, n_SV), or (1, n_SV) for two classes
        Coefficients of the decision functions; of two classes, of their difference.
    intercept_ : ndarray of shape (c,) or (1,)
        Zero.
    n_iter_ : int
        Steps made.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only where the training rows had names.
    dual_objective_ : float
        Evaluated in float64, when it is asked for.
    kernel_evaluations_ : int
    history_ : list of dict
    model_ : KernelModel

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dasksvm import MulticlassSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> MulticlassSVC(machine="llw", C=10, gamma=0.001, random_state=0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    _parameter_rules = RULES
    # Of LaSVC's: pairs of classes are not a machine.
    decision_function_shape = "ovr"

    def __init__(
        self,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        *,
        machine: str = "cs",
        solver: str = "online",
        working_set: str = "random-pattern",
        schedule: str = "adaptive",
        old_new: bool = False,
        tol: float = 1e-3,
        epochs: int | str = 1,
        finish: bool = False,
        max_examples: int | None = None,
        max_support: int | None = None,
        max_time: float | None = None,
        class_weight: Any = None,
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
        self.machine = machine
        self.solver = solver
        self.working_set = working_set
        self.schedule = schedule
        self.old_new = old_new
        self.tol = tol
        self.epochs = epochs
        self.finish = finish
        self.max_examples = max_examples
        self.max_support = max_support
        self.max_time = max_time
        self.class_weight = class_weight
        self.cache_size = cache_size
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.client = client

    def _passes(self) -> int:
        return CONVERGED if look_up(SOLVERS, "solver", self.solver).batch else super()._passes()

    def _coding(self, problem: Problem) -> Coding:
        boxes = problem.boxes(self.C, self.class_weight)
        return Coding(np.zeros((1, len(boxes))), boxes[None])

    def _settings(self, width: int, variance: float, epochs: int, coding: Coding) -> Settings:
        larank, batch, unused = look_up(SOLVERS, "solver", self.solver)
        check_unused(self, unused, f"solver={self.solver!r}")
        if larank and self.machine != "cs":
            raise ValueError(f"solver 'larank' is for machine 'cs' only. Got {self.machine!r} instead.")
        steps = 4 if self.old_new else 3
        rules = online.Rules(
            tau=self._tolerance / 2 if epochs == CONVERGED else self._tolerance,
            steps=1 if batch else steps,
            strategy=look_up(WORKING_SETS, "working_set", self.working_set),
            larank=larank,
            adaptive=look_up(SCHEDULES, "schedule", self.schedule),
            work=online.FEATURE_WORK * (width + coding.signs.shape[1]) + online.VALUE_WORK,
        )
        return MachineSettings(
            tau=rules.tau,
            finish=bool(self.finish) or batch or epochs == CONVERGED,
            machine=machine(self.machine, coding.signs.shape[1]),
            rules=rules,
            **self._common(width, variance, epochs, 1),
        )

    def _selection(self) -> Selection:
        return Selection()

    def _goes_on(self, learner: Learner, coding: Coding) -> bool:
        assert isinstance(learner, MachineLearner)
        return learner.machine == machine(self.machine, coding.signs.shape[1])

    def _model_of(
        self, kernel: Kernel, form: Form, vectors: Any, alpha: NDArray[np.float64], extremes: NDArray[np.float64]
    ) -> KernelModel:
        if len(alpha) == 2:
            alpha, extremes = np.diff(alpha, axis=0), extremes[:1]
        return super()._model_of(kernel, form, vectors, alpha, extremes)

    def _publish(self, learner: Learner, examples: Examples, history: list[dict[str, Any]]) -> None:
        assert isinstance(learner, MachineLearner)
        super()._publish(learner, examples, history)
        self.alpha_ = learner.dual_variables()

    def _dual(self) -> tuple[float, float]:
        # Of two classes w_1 = -w_0, and the model has their difference.
        share = 0.25 if len(self.classes_) == 2 else 0.5
        half_norm = share * float(self.model_.squared_norms().sum())
        return float(self.alpha_.sum()) - half_norm, half_norm

    def _judge(self) -> tuple[NDArray[np.float64], Judge]:
        return self.alpha_, partial(judge, machine(self.machine, len(self.classes_)))


def judge(
    machine: Machine, targets: Targets, values: NDArray[np.float64], alpha: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Judge rows by a machine: a `Judge` of certificates. It is one problem, in which the solver's own violations count."""
    margins = np.stack([-values[:, 0], values[:, 0]]) / 2 if machine.classes == 2 else np.ascontiguousarray(values.T)
    (bound,), labels = targets.bound, targets.codes
    loss = float(bound @ losses(machine, margins, labels))
    # The scores sum to zero where they have to: the model has it so.
    found = violation(machine, alpha, margins, np.zeros(len(labels)), labels, bound, loads(machine, alpha, bound))
    return loss, found[None]
