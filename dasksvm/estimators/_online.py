"""Base class of the online solvers, which have `partial_fit` and can choose the next example."""

from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import DatasetSource, Examples, Form, Source, first_of_each_class
from dasksvm.estimators._fitting import CONVERGED, UNLIMITED, LearnedClassifier
from dasksvm.estimators.parameters import check_parameters
from dasksvm.estimators.problem import array_source, check_features, open_if_path, read_problem
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder, Selection
from dasksvm.solver.unbiased.batch_ascent import AscentSettings


class OnlineClassifier(LearnedClassifier):
    """Base of the online solvers."""

    def _store_state(self, learner: Learner, examples: Examples) -> None:
        learner.expansion.release_rows()
        learner.settings = replace(learner.settings, epochs=1)
        self._running = (learner, examples.form, examples.base + len(examples.columns), learner.order.seed)

    def partial_fit(
        self,
        X: RowsLike,
        y: ColumnLike | None = None,
        classes: npt.ArrayLike | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Self:
        """Make one pass over a block of examples, continuing from the previous calls or from `fit`.

        The fitted model is made from a finished copy; the next call continues from the online state, which is not finished.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        y : array of shape (n,)
        classes : array of shape (c,)
            All classes; required in the first call.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
            The estimator.
        """
        check_parameters(self, self._parameter_rules)
        first = not hasattr(self, "_running")
        if first:
            self._clear_fitted()
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight 'balanced' is not supported by partial_fit: compute the weights and pass them as a dict."
                )
        known = np.unique(np.asarray(classes)) if first else self.classes_
        if classes is not None and not np.array_equal(known, np.unique(np.asarray(classes))):
            raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {known!r}")
        problem = read_problem(self, X, y, sample_weight, known, reset=first)
        if first:
            learner, examples, seed = self._prepare(problem, self._coding(problem), 1)
        else:
            learner, form, base, seed = self._running
            coding = self._coding(problem)
            if not self._can_continue(learner, coding):
                raise ValueError(
                    "the parameters were changed so that the two-class problems differ from those of the previous calls."
                )
            examples = Examples(problem.source, form, problem.columns, coding, base)
            seed += 1
        entries = getattr(self, "history_", [])
        try:
            order = RandomOrder(examples.source.chunks, seed, examples.base)
            learner.feed(order, first_of_each_class(order, examples, self._initial_per_class if first else 0))
            learner, history, _ = self._run(learner, examples, ())
        except BaseException:
            self._clear_fitted()
            raise
        self._set_fitted_attributes(learner, examples, [*entries, *history])
        self._running = (learner, examples.form, examples.base + len(examples.columns), seed)
        return self

    def _can_continue(self, learner: Learner, coding: Coding) -> bool:
        """Return whether a learner has the problems of a coding."""
        return learner.settings.problems == coding.problems and self.model_.pairwise == self._votes

    def _prepare_unlabelled(self, X: RowsLike, epochs: int) -> tuple[Source, Learner, Form, int]:
        """Prepare for rows whose labels are not known yet: budgets do not apply, and only copies are finished."""
        check_parameters(self, self._parameter_rules)
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight 'balanced' needs all labels, which are not known yet: pass the weights as a dict."
            )
        X = open_if_path(X)
        if isinstance(X, Dataset):
            source: Source = DatasetSource(check_features(self, X, reset=True))
        else:
            source = array_source(self, X, reset=True)
        settings, form = self._settings_and_form(source, epochs, Coding.of(np.ones(2)), labelled=0)
        name, seed = type(self).__name__, self._seed()
        if epochs == CONVERGED and not settings.converges:
            raise ValueError(f"retrain must be False: {name} has no optimum to train to.")
        if isinstance(settings, AscentSettings):
            raise ValueError(
                f"{name} must have solver='online': with 'batch' there is no model before all labels are known."
            )
        settings = replace(
            settings,
            max_examples=UNLIMITED,
            max_support=UNLIMITED,
            finish=epochs == CONVERGED,
            selection=Selection(),
            seed=seed,
        )
        return source, make_learner(settings), form, seed
