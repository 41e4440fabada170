"""Base class of the estimators that a learner trains: the run, in this process or on a cluster, and the fitted attributes."""

import copy
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypedDict

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from dasksvm import config
from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.coding import Coding
from dasksvm.data.sources import (
    DatasetSource,
    Examples,
    Form,
    MemorySource,
    Source,
    deviation,
    first_of_each_class,
    moments,
)
from dasksvm.estimators._base import KernelClassifier
from dasksvm.estimators.certificate import RowEvaluator
from dasksvm.estimators.parameters import Rule, check_parameters
from dasksvm.estimators.problem import Problem, read_problem
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.preview import Finished
from dasksvm.solver.engine.selection import RandomOrder, Selection
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.messages import Progress
from dasksvm.solver.registry import look_up
from dasksvm.solver.state.expansion import SEEDS
from dasksvm.training.callbacks import (
    HeldOut,
    HeldOutEvaluation,
    History,
    ProgressLines,
    TimeBudget,
    Watcher,
    WatcherGroup,
)
from dasksvm.training.local_executor import LocalExecutor
from dasksvm.training.snapshots import Checkpoint, Snapshots
from dasksvm.training.timings import Timings

AUTO = "auto"
CONVERGED, CHOSEN = 0, -1
# Values of `epochs` that are words. With CHOSEN, the estimator chooses the number together with the settings.
EPOCHS = {"converged": CONVERGED}
# Types of kernel values, by the value of `dtype`.
DTYPES: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
# Values of `decision_function_shape`: whether the problems are pairs of classes.
SHAPES = {"ovr": False, "ovo": True}
UNLIMITED = 1 << 62
# Megabytes of kernel rows with `cache_size="auto"`, where results depend on them in their last bits and on clusters. Elsewhere it
# is the memory of the machine divided by MEMORY_PART.
CACHE_SIZE, MEMORY_PART = 1000, 3
# With at least this share of non-zeros, dense tiles are cheaper than tiles of CSR members.
DENSE_SHARE = 0.05
# Members are made dense up to this number of features.
DENSE_WIDTH = 4096
# Values of `gamma` that are words, as functions of the number of features and the spread of their values; see `deviation`.
GAMMAS: dict[str, Callable[[int, float], float]] = {
    "scale": lambda width, spread: 1.0 / (width * spread) if spread > 0 else 1.0,
    "auto": lambda width, spread: 1.0 / width,
}
# Advice about columns on very different scales, for data sets and for arrays.
STORED = "Write the data set with scale='standard' or 'minmax': the model then applies the same scaling."
GIVEN = "Scale them, for example with a StandardScaler before the estimator in a Pipeline."
# Parameters that may end a run before it has converged.
BUDGETS = ("max_time", "max_examples", "max_support")
# Number of support vectors on which convergence is checked with the features as they were given.
CHECKED = 1000
# Violations are differences of numbers near 1: smaller ones are rounding errors, which a solver could never remove.
LEAST_TOL = 1e-14
# Function that is called with the learner and its examples before the learner gets its order.
PrepareLearner = Callable[[Learner, Examples], None]
# Function that returns the checkpoint of a run; its arguments define the run, the last one says whether the seed is fixed.
MakeCheckpoint = Callable[[Settings, Examples, bool], Checkpoint]


class SharedSettings(TypedDict):
    """The fields of `Settings` that do not depend on the solver."""

    kernel: Kernel
    problems: int
    epochs: int
    max_examples: int
    max_support: int
    cache_bytes: int
    inflight_bytes: int
    lookahead: int
    filter: bool
    selection: Selection


class LearnedClassifier(KernelClassifier):
    """Base of the estimators that a learner trains; a subclass has the parameters, their rules and the solver's settings."""

    _parameter_rules: dict[str, Rule]
    # Number of examples of each class with which a run begins, before it follows its order.
    _initial_per_class = SEEDS
    client: Any

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        """Make the solver's settings from those that all solvers have, for rows with a given number of features."""
        raise NotImplementedError

    def fit(self, X: RowsLike, y: ColumnLike | None = None, sample_weight: ColumnLike | None = None) -> Self:
        """Train from scratch.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
            Dask arrays are computed chunk by chunk; their chunks are visited in random order.
        y : array of shape (n,)
            Labels of any type that can be sorted. Must be None for a data set, which has its own labels.
        sample_weight : array of shape (n,), optional
            Weights of the examples, which multiply C.

        Returns
        -------
        self
            The estimator. If the fit fails or is interrupted, the estimator is unfitted.
        """
        self._fit(X, y, sample_weight, ())
        return self

    def _fit(
        self,
        X: RowsLike,
        y: ColumnLike | None,
        sample_weight: ColumnLike | None,
        callbacks: Sequence[Watcher],
        prepare: PrepareLearner | None = None,
        make_checkpoint: MakeCheckpoint | None = None,
    ) -> tuple[Timings, bool]:
        """Train from scratch, from the state that `prepare` gives the learner, or from a snapshot.

        Return the timings of the run and whether it ended early.
        """
        self._clear_fitted()
        try:
            check_parameters(self, self._parameter_rules)
            problem = read_problem(self, X, y, sample_weight, reset=True)
            coding = self._coding(problem)
            learner, examples, history, timings = self._learn(problem, coding, callbacks, prepare, make_checkpoint)
            self._set_fitted_attributes(learner, examples, history)
            self._warn_of_shortfall(learner, examples)
        except BaseException:
            self._clear_fitted()
            raise
        self._store_state(learner, examples)
        return timings, learner.ended_early()

    def _clear_fitted(self) -> None:
        """Remove all fitted attributes, and the state from which `partial_fit` continues."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("__")]:
            delattr(self, name)
        self.__dict__.pop("_running", None)

    def _store_state(self, learner: Learner, examples: Examples) -> None:
        """Keep the state from which `partial_fit` continues; by default none."""

    def _learn(
        self,
        problem: Problem,
        coding: Coding,
        callbacks: Sequence[Watcher],
        prepare: PrepareLearner | None = None,
        make_checkpoint: MakeCheckpoint | None = None,
    ) -> tuple[Learner, Examples, list[dict[str, Any]], Timings]:
        """Make all passes over the examples of a problem."""
        epochs = self._passes()
        learner, examples, seed = self._prepare(problem, coding, epochs)
        if prepare is not None:
            prepare(learner, examples)
        order = RandomOrder(examples.source.chunks, seed)
        learner.feed(order, first_of_each_class(order, examples, self._initial_per_class))
        learner, history, timings = self._run(learner, examples, callbacks, make_checkpoint)
        return learner, examples, history, timings

    def _warn_of_shortfall(self, learner: Learner, examples: Examples) -> None:
        """Warn if a run that should have reached the optimum did not reach `tol`; called after `_set_fitted_attributes`."""
        if learner.converged and self.dtype != "float64":
            self._check_support_vectors(learner, examples)
        learner.converged = learner.converged and bool(learner.violation.max() <= self.tol)
        shortfall = None if learner.converged else self._ended_by_budget(learner)
        if shortfall is None and not (learner.converged or learner.stopped):
            shortfall = self._shortfall(learner)
        if shortfall is not None:
            warnings.warn(f"{type(self).__name__} {shortfall}", ConvergenceWarning, stacklevel=4)

    def _check_support_vectors(self, learner: Learner, examples: Examples) -> None:
        """Check the convergence of a run on support vectors with the features as they were given.

        The learner has checked it in float64, but with features rounded to float32. With large coefficients, this rounding
        alone may change decision values by more than `tol`; the check finds this.
        """
        _, _, rows, _ = learner.solution()
        if len(rows) == 0:
            return
        some = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), CHECKED)).astype(np.int64))
        alpha, row_loss = self._row_loss()
        evaluator = RowEvaluator(self.model_, examples.coding, row_loss, self.support_, alpha, 0)
        ids = rows[some] - examples.base
        found = evaluator.evaluate(self.support_vectors_[some], self.support_[some], examples.columns, ids)
        learner.violation = np.maximum(learner.violation, found.violation)

    def _shortfall(self, learner: Learner) -> str | None:
        """Describe how a run failed to converge; None if it was not meant to converge."""
        if self._passes() != CONVERGED:
            return None
        return self._describe_violation(learner)

    def _ended_by_budget(self, learner: Learner) -> str | None:
        """Say what a run that was to end at the optimum has missed because a budget ended it; None if none did."""
        budgets = {name: getattr(self, name, None) for name in BUDGETS}
        given = ", ".join(f"{name}={value}" for name, value in budgets.items() if value is not None)
        if not given or not learner.ended_early() or self._shortfall(learner) is None:
            return None
        return (
            f"ended early ({given}), before it reached tol={self.tol}; of the examples that it looked at last, "
            f"{violation_of(learner)}."
        )

    def _describe_violation(self, learner: Learner) -> str:
        """Describe by how much the run missed `tol`, and what may help."""
        advice = "a larger tol" + (", or dtype='float64'," if self.dtype == "float32" else "")
        return f"did not reach tol={self.tol} in {self.dtype}: {violation_of(learner)}; {advice} may help."

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the client, which belongs to this process; the address of a scheduler is kept."""
        state: dict[str, Any] = super().__getstate__()
        return state if isinstance(state["client"], str) else state | {"client": None}

    def __sklearn_clone__(self) -> Self:
        """Clone with the same client, which cannot be copied."""
        bare = copy.copy(self)
        clone: Self = super(LearnedClassifier, bare).__sklearn_clone__()
        clone.client = self.client
        return clone

    # From validated input to the learner and back

    def _prepare(self, problem: Problem, coding: Coding, epochs: int) -> tuple[Learner, Examples, int]:
        self.classes_ = problem.classes
        seed = self._seed()
        settings, form = self._settings_and_form(problem.source, epochs, coding)
        learner = make_learner(replace(settings, seed=seed))
        return learner, Examples(problem.source, form, problem.columns, coding, 0), seed

    def _passes(self) -> int:
        if isinstance(self.epochs, str):
            return look_up(EPOCHS, "number of epochs", self.epochs)
        return int(self.epochs)

    def _most_passes(self, examples: int) -> int:
        """Return how many passes over a number of examples are planned; 1 if this is not known."""
        return max(self._passes(), 1)

    def _coding(self, problem: Problem) -> Coding:
        return Coding.of(problem.boxes(self.C, self.class_weight), pairwise=self._pairwise)

    @property
    def _pairwise(self) -> bool:
        return look_up(SHAPES, "decision_function_shape", self.decision_function_shape)

    @property
    def _votes(self) -> bool:
        """Whether there is a problem for each pair of classes; two classes are one problem in any case."""
        return self._pairwise and len(self.classes_) > 2

    @property
    def _tolerance(self) -> float:
        """The largest violation that solvers leave: `tol`, but not less than rounding allows."""
        return max(float(self.tol), LEAST_TOL)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(1 << 31))

    def _settings_and_form(
        self, source: Source, epochs: int, coding: Coding, labelled: int | None = None
    ) -> tuple[Settings, Form]:
        """Return the settings of a run and the form of its features, which depend on the rows but not on the labels.

        Parameters
        ----------
        source : Source
        epochs : int
        coding : Coding
        labelled : int, optional
            Number of rows that have labels, if not all have.
        """
        mean, spread, share = moments(source)
        if source.scaling is None:
            found = source.spread().warning(self._names, STORED if isinstance(source, DatasetSource) else GIVEN)
            if found is not None:
                warnings.warn(found, stacklevel=6)
        if self.gamma == "scale":
            spread = deviation(source, mean, spread, KERNELS.find(self.kernel).deviation_order)
        kernel = kernel_of(self, len(mean), spread)
        shape = (sum(source.chunks) if labelled is None else labelled, len(mean))
        settings = self._settings(self._shared_settings(kernel, epochs, coding.problems), shape, coding)
        sparse = source.sparse and (share < DENSE_SHARE or len(mean) > DENSE_WIDTH)
        centre = mean if kernel.formula.shift_invariant and not sparse else None
        return settings, Form(np.dtype(look_up(DTYPES, "dtype", self.dtype)), source.scaling, centre, sparse)

    def _shared_settings(self, kernel: Kernel, epochs: int, problems: int) -> SharedSettings:
        """Return the settings that all solvers have; a parameter that an estimator does not have sets no limit."""
        selection, lookahead = Selection(), int(config.get("lookahead"))
        if hasattr(self, "selection"):
            selection = Selection(self.selection, int(self.candidates), bool(config.get("exact-selection")))
            if selection.exact and CRITERIA.find(selection.criterion).measure is not None:
                lookahead = 1
        return SharedSettings(
            kernel=kernel,
            problems=problems,
            epochs=epochs,
            max_examples=limit(getattr(self, "max_examples", None)),
            max_support=limit(getattr(self, "max_support", None)),
            cache_bytes=int((CACHE_SIZE if self.cache_size == AUTO else self.cache_size) * (1 << 20)),
            inflight_bytes=config.bytes_of("inflight-bytes"),
            lookahead=lookahead,
            filter=bool(config.get("filter")),
            selection=selection,
        )

    def _run(
        self,
        learner: Learner,
        examples: Examples,
        callbacks: Sequence[Watcher],
        make_checkpoint: MakeCheckpoint | None = None,
    ) -> tuple[Learner, list[dict[str, Any]], Timings]:
        """Run a learner that has its order, in this process or on a cluster."""
        settings = learner.settings
        planned = min(len(learner.order) * max(settings.epochs, 1), settings.max_examples)
        history, lines = History(), ProgressLines(planned, learner.seen)
        watchers: list[Watcher] = [history, *callbacks]
        if self.max_time is not None:
            watchers.append(TimeBudget(float(self.max_time)))
        if self.verbose:
            watchers.append(lines)
        held_out = [watcher for watcher in callbacks if isinstance(watcher, HeldOut)]
        for each in held_out:
            each.begin(self.n_features_in_, self.classes_, self._names)
        evaluation = HeldOutEvaluation(held_out, history, partial(self._model, settings.kernel, examples.form))
        checkpoint = (
            None if make_checkpoint is None else make_checkpoint(settings, examples, self.random_state is not None)
        )
        try:
            with self._cluster(examples.source) as cluster:
                if cluster is None:
                    memory = config.memory() // MEMORY_PART if self.cache_size == AUTO else None
                    executor = LocalExecutor(learner, examples, config.threads(), memory)
                    timings = executor.run(
                        WatcherGroup(watchers), evaluation, None if checkpoint is None else Snapshots(checkpoint)
                    )
                    learner = executor.learner
                else:
                    from dasksvm import runtime

                    learner, timings = runtime.run(
                        cluster, learner, examples, WatcherGroup(watchers), evaluation, checkpoint
                    )
        finally:
            if self.verbose:
                lines.close()
        return learner, history.entries, timings

    def _cluster(self, source: Source) -> Any:
        """Return a context manager for the client; a current client can exist only if distributed has been imported."""
        here = isinstance(source, MemorySource) or (self.client is None and "distributed" not in sys.modules)
        if here:
            return nullcontext()
        from dasksvm import runtime

        return runtime.use_client(self.client)

    def _model(self, kernel: Kernel, form: Form, finished: Finished) -> KernelModel:
        """Make a model of a finished copy; its support vectors equal the rows up to rounding."""
        return self._model_of(kernel, form, form.invert(finished.features), finished.alpha, finished.extremes)

    def _model_of(
        self, kernel: Kernel, form: Form, vectors: Any, alpha: NDArray[np.float64], extremes: NDArray[np.float64]
    ) -> KernelModel:
        with np.errstate(invalid="ignore"):  # -inf and inf where nothing is known about the bias yet
            intercepts = np.nan_to_num(extremes.mean(axis=1), nan=0.0, posinf=np.inf, neginf=-np.inf)
        names = self._names
        return KernelModel(
            kernel,
            vectors,
            alpha,
            intercepts,
            self.classes_,
            form.scaling,
            self._votes,
            None if names is None else tuple(names),
        )

    def _set_fitted_attributes(self, learner: Learner, examples: Examples, history: list[dict[str, Any]]) -> None:
        alpha, codes, rows, slots = learner.solution()
        source, base = examples.source, examples.base
        if rows.min(initial=base) >= base:
            vectors = source.raw(rows - base)
        else:
            vectors = examples.form.invert(learner.expansion.members().take(slots))
            vectors = sp.csr_matrix(vectors) if source.sparse else vectors
        support = rows if base else support_rows(source, rows)
        model = self._model_of(learner.settings.kernel, examples.form, vectors, alpha, learner.extremes)
        self._set_attributes(model, support, codes, learner.progress(), history)

    def _set_attributes(
        self, model: KernelModel, support: Ints, codes: Ints, progress: Progress, history: list[dict[str, Any]]
    ) -> None:
        """Set the fitted attributes."""
        self.model_, self.support_ = model, support
        self.support_vectors_, self.dual_coef_ = model.support_vectors, model.coefficients
        self.intercept_ = model.intercepts
        self.n_support_ = np.bincount(codes, minlength=len(model.classes)).astype(np.int32)
        self.n_iter_, self.kernel_evaluations_ = progress.steps, progress.evaluations
        self.history_ = history


def support_rows(source: Source, rows: Ints) -> Ints:
    """Return the row numbers that the user knows: for a data set, the rows of the source from which it was made."""
    return source.data.source_rows(rows) if isinstance(source, DatasetSource) else rows


def violation_of(learner: Learner) -> str:
    """Describe the largest violation of the whole training set."""
    known = f", give or take {learner.error:.2g}" if learner.error > 0.01 * np.max(learner.violation) else ""
    return f"the largest violation is {np.max(learner.violation):.3g}{known}"


def limit(budget: int | None) -> int:
    """Return a budget as a number; None means no limit."""
    return UNLIMITED if budget is None else int(budget)


def kernel_of(estimator: Any, width: int, spread: float) -> Kernel:
    """Make the kernel of an estimator for rows with `width` features, whose values have this spread (see `deviation`)."""
    gamma = estimator.gamma
    if isinstance(gamma, str):
        gamma = look_up(GAMMAS, "gamma", gamma)(width, spread)
    return Kernel(estimator.kernel, float(gamma), float(estimator.coef0), int(estimator.degree))
