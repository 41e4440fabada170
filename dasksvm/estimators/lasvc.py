"""LaSVC: the online kernel SVM of paper 1."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dasksvm.data.coding import Coding
from dasksvm.estimators._fitting import CONVERGED, DTYPES, EPOCHS, GAMMAS, SHAPES
from dasksvm.estimators._online import OnlineClassifier
from dasksvm.estimators.parameters import NONE, Rule, check_parameters, either, flag, integer, one_of, real
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.selection import CRITERIA
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.kernel import KERNELS
from dasksvm.solver.lasvm.learner import LasvmSettings

RULES: dict[str, Rule] = {
    "C": real("(0.0, inf)", lambda v: v > 0),
    "kernel": one_of(*KERNELS),
    "gamma": either(one_of(*GAMMAS), real("(0.0, inf)", lambda v: v > 0)),
    "degree": integer("[1, inf)", lambda v: v >= 1),
    "coef0": real("(-inf, inf)", lambda v: True),
    "tol": real("(0.0, inf)", lambda v: v > 0),
    "epochs": either(one_of(*EPOCHS), integer("[1, inf)", lambda v: v >= 1)),
    "selection": one_of(*CRITERIA),
    "candidates": integer("[1, inf)", lambda v: v >= 1),
    "reprocess": integer("[1, inf)", lambda v: v >= 1),
    "delta_max": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "second_order": flag(),
    "finish": flag(),
    "max_examples": either(NONE, integer("[1, inf)", lambda v: v >= 1)),
    "max_support": either(NONE, integer("[2, inf)", lambda v: v >= 2)),
    "decision_function_shape": one_of(*SHAPES),
    "max_time": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "cache_size": real("(0.0, inf)", lambda v: v > 0),
    "dtype": one_of(*DTYPES),
    "verbose": either(flag(), integer("[0, inf)", lambda v: v >= 0)),
}


class LaSVC(OnlineClassifier):
    """Support vector classifier trained online: LASVM (paper 1, section 3.2).

    One pass over the data reaches the accuracy of the exact SVM on most problems; `epochs="converged"` reaches its optimum.
    More than two classes make a problem for each, against the rest, or for each pair. They are solved side by side and share the
    kernel rows and one filter, so that ten classes cost far less than ten runs.

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
        τ: pairs that violate by less are left alone.
    epochs : int or "converged", default=1
        Passes over the data; "converged" makes passes until no example of the whole set violates by more than `tol`.
    selection : {"random", "gradient", "active", "autoactive"}, default="random"
        Which example comes next (paper 1, section 4): any; or, of `candidates` random examples that were not processed yet in the
        epoch, the most misclassified or the one nearest to the boundary. "autoactive" is active, but takes only as many as
        bring five that could enter, at most twice `candidates`. All but "random" are meant for runs that end early, by
        `max_examples`, `max_support` or a callback; with several epochs none chooses members, with "converged" only the first
        pass chooses at all.
    candidates : int, default=50
        Examples that one is chosen from.
    reprocess : int, default=1
        REPROCESS steps after each example.
    delta_max : float, default=None
        Go on with REPROCESS until δ is below this (paper 1, section 3.5).
    second_order : bool, default=False
        Choose the partner in a direction search by gain, not by gradient.
    finish : bool, default=True
        End with finishing: REPROCESS until no pair of support vectors violates.
    max_examples, max_support : int, default=None
        End the online iterations after so many examples, or when there are so many potential support vectors in a problem.
    max_time : float, default=None
        End them after so many seconds. Finishing follows.
    class_weight : dict or "balanced", default=None
        Weights of the classes; they multiply C.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Of more than two classes: each against the rest, or the pairs of them, which vote. Unlike `SVC`, which always trains
        pairs, this says what is trained.
    cache_size : float, default=1000
        Megabytes for kernel rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Decides the order of the examples. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.
    client : distributed.Client or str, default=None
        The cluster, or its scheduler's address, that trains on Dask arrays and data sets; None: the current client, or this
        process if there is none. NumPy arrays and SciPy matrices are always trained on in this process.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    support_ : ndarray of shape (n_SV,)
        Rows of the support vectors in X; after `partial_fit`, counted over all blocks.
    support_vectors_ : ndarray or csr_matrix of shape (n_SV, n_features)
    n_support_ : ndarray of shape (c,)
        Support vectors of each class.
    dual_coef_ : ndarray of shape (P, n_SV)
        α, with the sign of the label, in each problem: one of two classes, else one a class or a pair.
    intercept_ : ndarray of shape (P,)
    n_iter_ : int
        Direction searches made.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only where the training rows had names.
    dual_objective_ : float
        Evaluated in float64, when it is asked for.
    kernel_evaluations_ : int
    history_ : list of dict
        What was seen, the size of S, δ, the dual, seconds and kernel values, after every batch.
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
        epochs: int | str = 1,
        selection: str = "random",
        candidates: int = 50,
        reprocess: int = 1,
        delta_max: float | None = None,
        second_order: bool = False,
        finish: bool = True,
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
        self.tol = tol
        self.epochs = epochs
        self.selection = selection
        self.candidates = candidates
        self.reprocess = reprocess
        self.delta_max = delta_max
        self.second_order = second_order
        self.finish = finish
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
        return LasvmSettings(
            tau=self._tolerance / 2 if epochs == CONVERGED else self._tolerance,
            reprocess=int(self.reprocess),
            delta_max=np.inf if self.delta_max is None else float(self.delta_max),
            second_order=bool(self.second_order),
            finish=bool(self.finish),
            **self._common(width, variance, epochs, coding.problems),
        )

    def _fit_path(self, X: Any, y: Any, Cs: Sequence[float]) -> tuple[list[KernelModel], int]:
        """Train for each of several C, side by side over the same kernel rows; the estimator is left unfitted.

        Parameters
        ----------
        X, y
            As in `fit`.
        Cs : sequence of float
            Take the place of `C`.

        Returns
        -------
        models : list of KernelModel
            One for each C, with the support vectors that it uses.
        evaluations : int
            Kernel values that were computed for all of them.
        """
        self._forget()
        try:
            check_parameters(self, self._parameter_rules)
            problem = self._problem(X, y, None, reset=True)
            coding = Coding.of(problem.boxes(1.0, self.class_weight), pairwise=self._pairwise, factors=Cs)
            learner, examples, history, _ = self._learn(problem, coding, ())
            self._publish(learner, examples, history)
            self._warn_of_shortfall(learner, examples)
            whole, evaluations = self.model_, self.kernel_evaluations_
        finally:
            self._forget()
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
