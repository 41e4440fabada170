"""LaSVC: the online kernel SVM of paper 1."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dasksvm.data.array_types import ClassWeights, ColumnLike, RandomState, RowsLike
from dasksvm.data.coding import Coding
from dasksvm.estimators._fitting import AUTO, CHOSEN, CONVERGED, DTYPES, EPOCHS, GAMMAS, SHAPES, SharedSettings
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.parameters import (
    NONE,
    Rule,
    changed_parameters,
    check_parameters,
    check_unused,
    either,
    flag,
    integer,
    one_of,
    real,
    registered,
)
from dasksvm.estimators.problem import read_problem
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.blocks.learner import BlocksSettings
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.lasvm.learner import LasvmSettings
from dasksvm.solver.registry import look_up


class Engine(NamedTuple):
    """A way to train: the passes that `epochs="auto"` stands for, and the parameters that have no effect."""

    passes: int
    unused: tuple[str, ...]


ENGINES = {
    "single": Engine(1, ()),
    "blocks": Engine(2, ("selection", "candidates", "reprocess", "delta_max", "second_order")),
}
# With more examples than this, `engine="auto"` stands for "blocks".
MANY_EXAMPLES = 5000
# With `epochs="auto"`, the second pass is left out if a smaller share of the support vectors is at its bound.
LEAST_BOUNDED = 0.05
RULES: dict[str, Rule] = {
    "C": real("(0.0, inf)", lambda v: v > 0),
    "kernel": registered(KERNELS),
    "gamma": either(one_of(*GAMMAS), real("(0.0, inf)", lambda v: v > 0)),
    "degree": integer("[1, inf)", lambda v: v >= 1),
    "coef0": real("(-inf, inf)", lambda v: True),
    "tol": real("(0.0, inf)", lambda v: v > 0),
    "epochs": either(one_of(AUTO, *EPOCHS), integer("[1, inf)", lambda v: v >= 1)),
    "selection": registered(CRITERIA),
    "candidates": integer("[1, inf)", lambda v: v >= 1),
    "reprocess": integer("[1, inf)", lambda v: v >= 1),
    "delta_max": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "second_order": flag(),
    "finish": flag(),
    "engine": one_of(AUTO, *ENGINES),
    "max_examples": either(NONE, integer("[1, inf)", lambda v: v >= 1)),
    "max_support": either(NONE, integer("[2, inf)", lambda v: v >= 2)),
    "decision_function_shape": one_of(*SHAPES),
    "max_time": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "cache_size": either(one_of(AUTO), real("(0.0, inf)", lambda v: v > 0)),
    "dtype": one_of(*DTYPES),
    "verbose": either(flag(), integer("[0, inf)", lambda v: v >= 0)),
}


class LaSVC(OnlineClassifier):
    """Support vector classifier trained online: LASVM (paper 1, section 3.2).

    One or two passes over the data reach the accuracy of the exact SVM on most problems; `epochs="converged"` reaches its
    optimum. With more than two classes there is one problem for each class against the rest, or one for each pair of classes.
    They are solved together and share the kernel values, so that ten classes cost far less than ten runs.

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
        τ: pairs of examples that violate the optimality conditions by less are ignored.
    epochs : int, "auto" or "converged", default="auto"
        Passes over the data; with "converged", passes are made until no example of the whole set violates by more than `tol`.
        "auto" is 1 with the engine "single". With "blocks" it is 2, or 1 if the labels are so clean that after the first pass
        less than a twentieth of the support vectors is at the bound C.
    selection : {"random", "gradient", "active", "autoactive"}, default="random"
        How the next example is chosen (paper 1, section 4). "random" takes any example. The others take one of `candidates`
        random examples that have not been processed yet in the epoch: "gradient" the most misclassified one, "active" the one
        nearest to the boundary. "autoactive" is like "active", but draws examples only until five of them could become support
        vectors, and at most twice `candidates`. All but "random" are meant for runs that end early, by `max_examples`,
        `max_support` or a callback. With several epochs, they do not choose examples that are already in the expansion; with
        "converged", they choose in the first pass only.
    candidates : int, default=50
        Number of random examples from which the next one is chosen.
    reprocess : int, default=1
        Number of REPROCESS steps after each example.
    delta_max : float, default=None
        Repeat REPROCESS after each example until δ, the uncertainty of the bias, is below this (paper 1, section 3.5).
    second_order : bool, default=False
        Choose the second example of a pair by the largest gain instead of the largest gradient.
    finish : bool, default=True
        Finish at the end: repeat REPROCESS until no pair of support vectors violates.
    engine : {"auto", "single", "blocks"}, default="auto"
        "single" is LASVM as in paper 1, which changes two coefficients in a step. "blocks" changes many at once: it takes less
        time on large data sets and less memory, but on small ones a pass ends further from the optimum. "auto" is "blocks" with
        more than 5000 examples if `selection`, `candidates`, `reprocess`, `delta_max` and `second_order`, which are for
        "single", have their defaults; otherwise it is "single". `partial_fit` decides by its first block.
    max_examples, max_support : int, default=None
        Stop the online iterations after this many examples, or when the expansion of a problem has this many examples.
    max_time : float, default=None
        Stop them after this many seconds. Finishing follows.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        With more than two classes, train each class against the rest ("ovr"), or all pairs of classes, which vote ("ovo").
        `SVC` always trains pairs; here this parameter decides what is trained.
    cache_size : float or "auto", default="auto"
        Memory for kernel values, in megabytes. "auto" is 1000 with the engine "single" and on clusters, and otherwise a third of
        the machine's memory, of which no more is used than there are values to keep. With "blocks" it has no influence on the
        model.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Seed for the order of the examples. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        Client of the cluster that trains on Dask arrays and data sets, or the address of its scheduler. With None, the current
        client is used, or this process if there is none. NumPy arrays and SciPy matrices are always used in this process.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    support_ : ndarray of shape (n_SV,)
        Rows of the support vectors in X; after `partial_fit`, counted over all blocks.
    support_vectors_ : ndarray or csr_matrix of shape (n_SV, n_features)
    n_support_ : ndarray of shape (c,)
        Number of support vectors of each class.
    dual_coef_ : ndarray of shape (P, n_SV)
        Coefficients α with the sign of the label, for each problem: one problem for two classes, otherwise one for each class or
        each pair of classes.
    intercept_ : ndarray of shape (P,)
    n_iter_ : int
        Number of direction searches.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if the training rows had names.
    dual_objective_ : float
        Computed in float64 when it is read.
    kernel_evaluations_ : int
        Number of kernel values computed. Where values are kept, it depends on `cache_size`, and on whether there are
        workers on other machines.
    history_ : list of dict
        An entry for each batch: the examples seen, the size of the expansion (`support_vectors`), the uncertainty of the bias
        (`delta`), the dual objective, the time in seconds and the number of kernel values.
    model_ : KernelModel

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import LaSVC
    >>> X, y = make_moons(500, noise=0.2, random_state=0)
    >>> LaSVC(C=10, random_state=0).fit(X, y).score(X, y) > 0.95
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
        epochs: int | str = AUTO,
        selection: str = "random",
        candidates: int = 50,
        reprocess: int = 1,
        delta_max: float | None = None,
        second_order: bool = False,
        finish: bool = True,
        engine: str = AUTO,
        max_examples: int | None = None,
        max_support: int | None = None,
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
        self.epochs = epochs
        self.selection = selection
        self.candidates = candidates
        self.reprocess = reprocess
        self.delta_max = delta_max
        self.second_order = second_order
        self.finish = finish
        self.engine = engine
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

    def _passes(self) -> int:
        return CHOSEN if self.epochs == AUTO else super()._passes()

    def _most_passes(self, examples: int) -> int:
        return ENGINES[self._engine(examples)].passes if self.epochs == AUTO else super()._most_passes(examples)

    def _engine(self, examples: int) -> str:
        """Return the engine for a number of examples."""
        if self.engine != AUTO:
            return self.engine
        few = examples <= MANY_EXAMPLES or changed_parameters(self, ENGINES["blocks"].unused)
        return "single" if few else "blocks"

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        tau = self._tolerance / 2 if shared["epochs"] == CONVERGED else self._tolerance
        name = self._engine(shape[0])
        engine = look_up(ENGINES, "engine", name)
        check_unused(self, engine.unused, f"engine={name!r}")
        least_bounded = 0.0
        if shared["epochs"] == CHOSEN:
            shared, least_bounded = {**shared, "epochs": engine.passes}, LEAST_BOUNDED
        if name == "blocks":
            return BlocksSettings(tau=tau, finish=bool(self.finish), least_bounded=least_bounded, **shared)
        return LasvmSettings(
            tau=tau,
            reprocess=int(self.reprocess),
            delta_max=np.inf if self.delta_max is None else float(self.delta_max),
            second_order=bool(self.second_order),
            finish=bool(self.finish),
            **shared,
        )

    def _fit_path(self, X: RowsLike, y: ColumnLike, Cs: Sequence[float]) -> tuple[list[KernelModel], int]:
        """Train for several values of C together, with the same kernel rows; the estimator is unfitted afterwards.

        Parameters
        ----------
        X, y
            As in `fit`.
        Cs : sequence of float
            The values to use instead of the parameter `C`.

        Returns
        -------
        models : list of KernelModel
            One for each C, with the support vectors that it uses.
        evaluations : int
            Number of kernel values computed for all models together.
        """
        self._clear_fitted()
        try:
            check_parameters(self, self._parameter_rules)
            problem = read_problem(self, X, y, None, reset=True)
            coding = Coding.of(problem.boxes(1.0, self.class_weight), pairwise=self._pairwise, factors=Cs)
            learner, examples, history, _ = self._learn(problem, coding, ())
            self._set_fitted_attributes(learner, examples, history)
            self._warn_of_shortfall(learner, examples)
            whole, evaluations = self.model_, self.kernel_evaluations_
        finally:
            self._clear_fitted()
        count = coding.problems // len(Cs)
        models = []
        for start in range(0, coding.problems, count):
            coefficients = whole.coefficients[start : start + count]
            used = np.flatnonzero(coefficients.any(axis=0))
            vectors, intercepts = whole.support_vectors[used], whole.intercepts[start : start + count]
            models.append(
                replace(whole, support_vectors=vectors, coefficients=coefficients[:, used], intercepts=intercepts)
            )
        return models, evaluations
