"""MulticlassSVC: the all-in-one machines of paper 5."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.array_types import ClassWeights, RandomState
from dasksvm.data.coding import Coding
from dasksvm.data.sources import Examples, Form
from dasksvm.estimators._fitting import CONVERGED, SharedSettings
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.certificate import RowLoss
from dasksvm.estimators.lasvc import RULES as SHARED
from dasksvm.estimators.parameters import Rule, check_unused, flag, one_of
from dasksvm.estimators.problem import Problem
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.learner import Learner
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
    """The properties of a solver.

    Attributes
    ----------
    larank : bool
        Whether it makes LaRank's steps.
    batch : bool
        Whether it adds patterns first and solves for them afterwards.
    unused : tuple of str
        Parameters that it does not use.
    """

    larank: bool
    batch: bool
    unused: tuple[str, ...]


SOLVERS = {
    "online": Solver(larank=False, batch=False, unused=()),
    "batch": Solver(larank=False, batch=True, unused=("working_set", "schedule", "old_new")),
    "larank": Solver(larank=True, batch=False, unused=("working_set", "old_new")),
}
# Values of `schedule`: whether the next kind of step is drawn in proportion to what each kind has achieved.
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

    All classes are in one problem, without bias. The margins are ½(f_y - f_c) ("ww", "cs") or -f_c with Σ_c f_c = 0 ("llw"), and
    their target is 1. The loss is the sum ("ww", "llw") or the maximum ("cs") of the amounts by which they miss the target.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of errors: upper bound of the coefficients, in the units of paper 5.
    kernel : {"linear", "poly", "rbf", "sigmoid", "laplacian"}, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
        γ of all kernels but linear. "scale" is 1 / (n_features · X.var()), of laplacian 1 / (n_features · |X - X.mean()|.mean());
        "auto" is 1 / n_features.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    machine : {"cs", "ww", "llw"}, default="cs"
        Crammer and Singer, Weston and Watkins, or Lee, Lin and Wahba.
    solver : {"online", "batch", "larank"}, default="online"
        "online" makes a step with each new pattern and steps among the old ones, in the order of the schedule (paper 5,
        algorithm 7). "batch" reaches the machine's optimum: each pass adds the violating patterns and is followed by S2DO in
        blocks. "larank" makes the steps of LaRank (paper 5, section 2.2.8), for "cs" only; LaRank's own C is a quarter of this C.
    working_set : {"random-pattern", "all", "within-pattern"}, default="random-pattern"
        For the online solver, how the two variables of a step among old patterns are chosen. "random-pattern": the first belongs
        to a random pattern and the second to any pattern (RANDOM_PATTERN_S2DO_ALL). "all": both belong to any pattern (S2DO_ALL).
        "within-pattern": both belong to one random pattern (RANDOM_PATTERN_S2DO_PATTERN). With the solvers "batch" and "larank",
        only the default is accepted.
    schedule : {"adaptive", "fixed"}, default="adaptive"
        For the online solvers, how the next kind of step is chosen: drawn in proportion to what each kind has achieved for the
        number of values it used ("adaptive"), or in turn ("fixed"). With the solver "batch", only the default is accepted.
    old_new : bool, default=False
        For the online solver, whether there are also steps with one new and one old pattern; they add little (paper 5, section
        4.2.1). With the solvers "batch" and "larank", only the default is accepted.
    tol : float, default=1e-3
        ε: smaller violations of the optimality conditions are ignored.
    epochs : int or "converged", default=1
        Online passes over the data; "converged" trains to the optimum, as the batch solver always does.
    finish : bool, default=False
        Whether an online run ends with the machine's optimum over the support patterns that it has found.
    max_examples, max_support : int, default=None
        Stop the iterations after this many examples, or when there are this many support patterns.
    max_time : float, default=None
        Stop them after this many seconds; the batch solver first finishes the problem that it is solving.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply C.
    cache_size : float, default=1000
        Memory for kernel rows, in megabytes.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Seed for the order of the examples and for the random patterns. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        As in `LaSVC`.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    support_ : ndarray of shape (n_SV,)
        Rows of the support patterns in X; after `partial_fit`, counted over all blocks.
    support_vectors_ : ndarray or csr_matrix of shape (n_SV, n_features)
    n_support_ : ndarray of shape (c,)
        Number of support patterns of each class.
    alpha_ : ndarray of shape (c, n_SV)
        Dual variables of each pattern.
    dual_coef_ : ndarray of shape (c, n_SV), or (1, n_SV) for two classes
        Coefficients of the decision functions; with two classes, of the difference of the two decision functions.
    intercept_ : ndarray of shape (c,) or (1,)
        Zero.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if the training rows had names.
    dual_objective_ : float
        Computed in float64 when it is read.
    kernel_evaluations_ : int
        Number of kernel values computed.
    history_ : list of dict
        Entries as in `LaSVC`; `delta` is the largest violation.
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
    # Not a parameter here, unlike in LaSVC: a machine does not consist of pairs of classes.
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
        class_weight: ClassWeights = None,
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

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        larank, batch, unused = look_up(SOLVERS, "solver", self.solver)
        check_unused(self, unused, f"solver={self.solver!r}")
        if larank and self.machine != "cs":
            raise ValueError(f"solver 'larank' is for machine 'cs' only. Got {self.machine!r} instead.")
        steps = 4 if self.old_new else 3
        rules = online.MachineRules(
            tau=self._tolerance / 2 if shared["epochs"] == CONVERGED else self._tolerance,
            steps=1 if batch else steps,
            strategy=look_up(WORKING_SETS, "working_set", self.working_set),
            larank=larank,
            adaptive=look_up(SCHEDULES, "schedule", self.schedule),
            work=online.FEATURE_WORK * (shape[1] + coding.signs.shape[1]) + online.VALUE_WORK,
        )
        return MachineSettings(
            tau=rules.tau,
            finish=bool(self.finish) or batch or shared["epochs"] == CONVERGED,
            machine=machine(self.machine, coding.signs.shape[1]),
            rules=rules,
            **shared,
        )

    def _can_continue(self, learner: Learner, coding: Coding) -> bool:
        assert isinstance(learner, MachineLearner)
        return learner.machine == machine(self.machine, coding.signs.shape[1])

    def _model_of(
        self, kernel: Kernel, form: Form, vectors: Any, alpha: NDArray[np.float64], extremes: NDArray[np.float64]
    ) -> KernelModel:
        if len(alpha) == 2:
            alpha, extremes = np.diff(alpha, axis=0), extremes[:1]
        return super()._model_of(kernel, form, vectors, alpha, extremes)

    def _set_fitted_attributes(self, learner: Learner, examples: Examples, history: list[dict[str, Any]]) -> None:
        assert isinstance(learner, MachineLearner)
        super()._set_fitted_attributes(learner, examples, history)
        self.alpha_ = learner.dual_variables()

    def _dual(self) -> tuple[float, float]:
        # With two classes w_1 = -w_0, and the model contains the difference of the two.
        share = 0.25 if len(self.classes_) == 2 else 0.5
        half_norm = share * float(self.model_.squared_norms().sum())
        return float(self.alpha_.sum()) - half_norm, half_norm

    def _row_loss(self) -> tuple[NDArray[np.float64], RowLoss]:
        return self.alpha_, partial(machine_loss, machine(self.machine, len(self.classes_)))


def machine_loss(
    machine: Machine, targets: Targets, values: NDArray[np.float64], alpha: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Compute the loss and the violations of rows in a machine, which is one problem; this is a `RowLoss` of certificates."""
    margins = np.stack([-values[:, 0], values[:, 0]]) / 2 if machine.classes == 2 else np.ascontiguousarray(values.T)
    (bound,), labels = targets.bound, targets.codes
    loss = float(bound @ losses(machine, margins, labels))
    # For machines that require it, the scores of the model sum to zero already.
    found = violation(machine, alpha, margins, np.zeros(len(labels)), labels, bound, loads(machine, alpha, bound))
    return loss, found[None]
