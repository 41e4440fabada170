"""LaSVC: the online kernel SVM of paper 1."""

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from dasksvm import config
from dasksvm.callbacks import History, ProgressLines, TimeBudget, Together
from dasksvm.estimators.base import KernelClassifier
from dasksvm.estimators.parameters import NONE, Rule, check_parameters, either, flag, integer, one_of, real
from dasksvm.estimators.sources import (
    DENSE_SHARE,
    DENSE_WIDTH,
    DaskSource,
    Examples,
    Form,
    MemorySource,
    first_of_each_class,
    moments,
)
from dasksvm.local import LocalExecutor
from dasksvm.model import KernelModel
from dasksvm.solver.kernels import KERNELS, Kernel
from dasksvm.solver.lasvm import SEEDS, Rules
from dasksvm.solver.learner import Learner
from dasksvm.solver.selection import RandomOrder
from dasksvm.solver.settings import Settings

LARGEST = 1 << 62
CONVERGED = 0

PARAMETERS: dict[str, Rule] = {
    "C": real("(0.0, inf)", lambda v: v > 0),
    "kernel": one_of(*KERNELS),
    "gamma": either(one_of("scale", "auto"), real("(0.0, inf)", lambda v: v > 0)),
    "degree": integer("[1, inf)", lambda v: v >= 1),
    "coef0": real("(-inf, inf)", lambda v: True),
    "tol": real("(0.0, inf)", lambda v: v > 0),
    "epochs": either(one_of("converged"), integer("[1, inf)", lambda v: v >= 1)),
    "reprocess": integer("[1, inf)", lambda v: v >= 1),
    "delta_max": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "second_order": flag(),
    "finish": flag(),
    "max_examples": either(NONE, integer("[1, inf)", lambda v: v >= 1)),
    "max_support": either(NONE, integer("[2, inf)", lambda v: v >= 2)),
    "max_time": either(NONE, real("(0.0, inf)", lambda v: v > 0)),
    "cache_size": real("(0.0, inf)", lambda v: v > 0),
    "dtype": one_of("float32", "float64"),
    "verbose": either(flag(), integer("[0, inf)", lambda v: v >= 0)),
}


class LaSVC(KernelClassifier):
    """Support vector classifier trained online: LASVM (paper 1, section 3.2), for two classes.

    One pass over the data reaches the accuracy of the exact SVM on most problems; `epochs="converged"` reaches its optimum.

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
    reprocess : int, default=1
        REPROCESS steps after each example.
    delta_max : float, default=None
        Go on with REPROCESS until δ is below this (paper 1, section 3.5).
    second_order : bool, default=False
        Choose the partner in a direction search by gain, not by gradient.
    finish : bool, default=True
        End with finishing: REPROCESS until no pair of support vectors violates.
    max_examples, max_support : int, default=None
        End the online iterations after so many examples, or when there are so many potential support vectors.
    max_time : float, default=None
        End them after so many seconds. Finishing follows.
    class_weight : dict or "balanced", default=None
        Weights of the classes; they multiply C.
    cache_size : float, default=1000
        Megabytes for kernel rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of kernel values; coefficients and gradients are always float64.
    random_state : int, RandomState or None, default=None
        Decides the order of the examples. The same seed gives the same model.
    verbose : int, default=0
        Show progress on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    support_ : ndarray of shape (n_SV,)
        Rows of the support vectors in X; after `partial_fit`, counted over all blocks.
    support_vectors_ : ndarray or csr_matrix of shape (n_SV, n_features)
    n_support_ : ndarray of shape (2,)
        Support vectors of each class.
    dual_coef_ : ndarray of shape (1, n_SV)
        α, with the sign of the label.
    intercept_ : ndarray of shape (1,)
    n_iter_ : int
        Direction searches made.
    n_features_in_ : int
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
        reprocess: int = 1,
        delta_max: float | None = None,
        second_order: bool = False,
        finish: bool = True,
        max_examples: int | None = None,
        max_support: int | None = None,
        max_time: float | None = None,
        class_weight: Any = None,
        cache_size: float = 1000,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.epochs = epochs
        self.reprocess = reprocess
        self.delta_max = delta_max
        self.second_order = second_order
        self.finish = finish
        self.max_examples = max_examples
        self.max_support = max_support
        self.max_time = max_time
        self.class_weight = class_weight
        self.cache_size = cache_size
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train from scratch.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d)
            Dask arrays are computed chunk by chunk; their chunks are visited in random order.
        y : array of shape (n,)
            Labels of two classes, of any type that sorts.
        sample_weight : array of shape (n,), optional
            Multiplies C.

        Returns
        -------
        LaSVC
            The estimator. A fit that fails or is interrupted leaves it unfitted.
        """
        self._forget()
        try:
            check_parameters(self, PARAMETERS)
            y = self._check_labels(X, y)
            source = self._source(X, reset=True)
            classes = np.unique(y)
            self._check_classes(classes, y)
            epochs = CONVERGED if self.epochs == "converged" else int(self.epochs)
            learner, examples, seed = self._prepare(source, y, classes, sample_weight, epochs)
            history = self._train(learner, examples, seed)
            self._publish(learner, examples, history)
        except BaseException:
            self._forget()
            raise
        if epochs == CONVERGED and not (learner.converged or learner.stopped):
            warnings.warn(
                f"LaSVC did not reach tol={self.tol} in {self.dtype}; a larger tol, or dtype='float64', may.",
                ConvergenceWarning,
                stacklevel=2,
            )
        learner.expansion.release_rows()
        learner.settings = replace(learner.settings, epochs=1)
        self._running = (learner, examples.without_source(), seed)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over a block of examples, going on from the calls before, or from `fit`.

        The model that is shown is finished on a copy: the online state goes on unfinished with the next block.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d)
        y : array of shape (n,)
        classes : array of shape (2,)
            All classes; needed in the first call.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        LaSVC
            The estimator.
        """
        check_parameters(self, PARAMETERS)
        first = not hasattr(self, "_running")
        if first:
            self._forget()
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight 'balanced' is not supported for partial_fit: compute the weights beforehand."
                )
        y = self._check_labels(X, y)
        source = self._source(X, reset=first)
        known = np.unique(np.asarray(classes)) if first else self.classes_
        self._check_classes(known, y)
        if classes is not None and not np.array_equal(known, np.unique(np.asarray(classes))):
            raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {known!r}")
        if not np.all(np.isin(y, known)):
            raise ValueError(f"y has labels that are not in classes {known!r}.")
        if first:
            learner, examples, seed = self._prepare(source, y, known, sample_weight, 1)
        else:
            learner, before, seed = self._running
            sign = np.where(np.searchsorted(known, y) == 1, 1.0, -1.0)
            examples = before.followed_by(source, sign, self._bounds(sign, sample_weight))
            seed += 1
        entries = getattr(self, "history_", [])
        try:
            history = self._train(learner, examples, seed, seeds=first)
        except BaseException:
            self._forget()
            raise
        self._publish(learner, examples, [*entries, *history])
        self._running = (learner, examples.without_source(), seed)
        return self

    def _forget(self) -> Self:
        self.__dict__.pop("_running", None)
        return super()._forget()

    # From the door to the learner and back

    def _prepare(
        self, source: MemorySource | DaskSource, y: NDArray[Any], classes: NDArray[Any], sample_weight: Any, epochs: int
    ) -> tuple[Learner, Examples, int]:
        self.classes_ = classes
        dtype = np.dtype(self.dtype)
        sign = np.where(np.searchsorted(classes, y) == 1, 1.0, -1.0)
        bound = self._bounds(sign, sample_weight)
        mean, variance, share = moments(source)
        if len(sign) != sum(source.chunks):
            raise ValueError(f"X has {sum(source.chunks)} rows, but y has {len(sign)}.")
        width = len(mean)
        gamma = self.gamma
        if gamma == "scale":
            gamma = 1.0 / (width * variance) if variance > 0 else 1.0
        elif gamma == "auto":
            gamma = 1.0 / width
        kernel = Kernel(self.kernel, float(gamma), float(self.coef0), int(self.degree))
        sparse = source.sparse and (share < DENSE_SHARE or width > DENSE_WIDTH)
        centre = mean if self.kernel == "rbf" and not sparse else None
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        rules = Rules(
            tau=self.tol / 2 if epochs == CONVERGED else float(self.tol),
            reprocess=int(self.reprocess),
            delta_max=np.inf if self.delta_max is None else float(self.delta_max),
            second_order=bool(self.second_order),
            max_support=LARGEST if self.max_support is None else int(self.max_support),
        )
        settings = Settings(
            kernel=kernel,
            rules=rules,
            problems=1,
            epochs=epochs,
            finish=bool(self.finish),
            max_examples=LARGEST if self.max_examples is None else int(self.max_examples),
            cache_bytes=int(self.cache_size * (1 << 20)),
            inflight_bytes=config.inflight_bytes(),
            lookahead=int(config.get("lookahead")),
            filter=bool(config.get("filter")),
        )
        return Learner(settings), Examples(source, Form(dtype, centre, sparse), sign, bound, 0), seed

    def _train(self, learner: Learner, examples: Examples, seed: int, *, seeds: bool = True) -> list[dict[str, Any]]:
        order = RandomOrder(examples.source.chunks, seed, examples.base)
        learner.feed(order, first_of_each_class(order, examples, SEEDS) if seeds else np.zeros(0, np.int64))
        history, lines = History(), ProgressLines(len(order))
        watchers: list[Any] = [history]
        if self.max_time is not None:
            watchers.append(TimeBudget(float(self.max_time)))
        if self.verbose:
            watchers.append(lines)
        LocalExecutor(learner, examples, config.threads()).run(Together(watchers))
        if self.verbose:
            lines.close()
        return history.entries

    def _publish(self, learner: Learner, examples: Examples, history: list[dict[str, Any]]) -> None:
        alpha, sign, rows, slots = learner.solution()
        if sp.issparse(getattr(examples.source, "X", None)) or rows.min(initial=examples.base) >= examples.base:
            vectors = examples.source.raw(rows - examples.base)
        else:
            vectors = learner.expansion.members().take(slots).dense()
            vectors = vectors if examples.form.centre is None else vectors + examples.form.centre.astype(vectors.dtype)
        self.support_ = rows
        self.n_support_ = np.array([np.sum(sign[0] < 0), np.sum(sign[0] > 0)], np.int32)
        intercepts = learner.extremes.mean(axis=1)
        self.model_ = KernelModel(learner.settings.kernel, vectors, alpha, intercepts, self.classes_)
        self.support_vectors_ = vectors
        self.dual_coef_ = alpha
        self.intercept_ = intercepts
        progress = learner.progress()
        self.n_iter_ = progress.steps
        self.kernel_evaluations_ = progress.evaluations
        self.history_ = history
