"""ActiveLearner: an SVM that chooses the rows whose labels it learns (paper 1, section 4.5)."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dasksvm import config
from dasksvm.config import workspaces
from dasksvm.config.blas import one_thread
from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.chunked import stacked
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import Examples, MemoryLabels, MemorySource
from dasksvm.estimators._fitting import CONVERGED, support_rows
from dasksvm.estimators.active.pool import Search, best_rows
from dasksvm.estimators.lasvc import LaSVC
from dasksvm.estimators.parameters import check_parameters, flag, integer, one_of
from dasksvm.estimators.problem import boxes_of, open_if_path
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.choice import best_of_groups
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.preview import finished_copy
from dasksvm.solver.engine.selection import AS_GIVEN, MOST_GROUPS, Pools, RandomOrder, Selection
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import ScorePlan, Targets, View
from dasksvm.solver.state.expansion import SEEDS
from dasksvm.training.local_executor import LocalExecutor


def criteria_without_labels() -> tuple[str, ...]:
    """List the selection criteria that a pool without labels allows."""
    return tuple(name for name, criterion in CRITERIA.items() if not criterion.labels)


class ActiveLearner:
    """Learn from a pool of rows by asking for the labels of a few rows (paper 1, section 4.5).

    Each label that is taught makes one iteration of LASVM. Labels in the pool are never read, even if it is a data set with
    labels. A data set with labels of more than two classes is refused, since an ActiveLearner separates two classes.

    Parameters
    ----------
    estimator : LaSVC
        Its parameters are used: kernel, C, class weights as a dict, cache, seed and client. It is not changed.
    pool : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        The id of a row is its number. For a data set, `Dataset.source_rows(ids)` returns the row numbers in its source.
    selection : {"active", "autoactive", "random"}, default="active"
        How a query chooses a row. "active": the one of `candidates` random rows that is nearest to the boundary. "autoactive":
        the same, but with fewer rows where they suffice (see `LaSVC`). "random": any row, for comparison.
    candidates : int or "all", default=50
        Number of random rows from which a query chooses. With "all" it searches the whole pool in parallel: on the estimator's
        client or the current one or, if the pool is an array in memory, in this process.
    first : int, default=5
        Number of labels of each class that are needed before queries use the boundary; until then they are random.
    retrain : bool, default=False
        Whether to train to the optimum of all labels so far whenever labels are taught, starting from the previous model, instead
        of one iteration for each label.

    Attributes
    ----------
    ids : ndarray of int64, shape (t,)
        Rows that were taught, in the order in which they were taught.
    labels : ndarray of shape (t,)
        Their labels.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from dasksvm import ActiveLearner, LaSVC
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> learner = ActiveLearner(LaSVC(C=10, random_state=0), X)
    >>> while len(learner.ids) < 60:
    ...     ids = learner.query(5)
    ...     _ = learner.teach(ids, y[ids])
    >>> learner.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        estimator: LaSVC,
        pool: RowsLike,
        *,
        selection: str = "active",
        candidates: int | str = 50,
        first: int = SEEDS,
        retrain: bool = False,
    ) -> None:
        self.selection, self.candidates, self.first, self.retrain = selection, candidates, first, retrain
        rules = {
            "selection": one_of(*criteria_without_labels()),
            "first": integer("[1, inf)", lambda v: v >= 1),
            "retrain": flag(),
        }
        if candidates != "all":
            rules["candidates"] = integer("[1, inf) or 'all'", lambda v: v >= 1)
        check_parameters(self, rules)
        self._criterion = CRITERIA.find(selection)
        if candidates == "all" and self._criterion.adaptive:
            raise ValueError(
                f"selection {selection!r} needs a number of candidates: with 'all' there is nothing to sample."
            )
        self.estimator = clone(estimator)
        pool = open_if_path(pool)
        if isinstance(pool, Dataset) and len(pool.classes) > 2:
            raise ValueError(
                f"an ActiveLearner needs a pool of two classes; {pool.path} has {pool.classes.tolist()}. "
                "To teach labels other than those stored in it, write the data set without labels."
            )
        epochs = CONVERGED if retrain else 1
        self._source, self._learner, self._form, seed = self.estimator._prepare_unlabelled(pool, epochs)
        most = 1 if candidates == "all" else int(candidates)
        self._pools = Pools(RandomOrder(self._source.chunks, seed), Selection(selection, most))
        self._pools.begin(np.zeros(0, np.int64))
        self._taught: list[Any] = []
        self.ids: Ints = np.zeros(0, np.int64)
        self.labels: NDArray[Any] = np.zeros(0)
        self._learned = 0
        self._current: LaSVC | None = None

    @property
    def started(self) -> bool:
        """Whether there are enough labels of both classes."""
        return self._learned > 0

    # Queries

    def query(self, count: int = 1) -> Ints:
        """Choose rows whose labels are most useful, among those that were not returned or taught before.

        Parameters
        ----------
        count : int, default=1
            Number of rows; all are chosen by the current model. Fewer are returned if the pool has no more.

        Returns
        -------
        ndarray of int64
            Their ids.
        """
        if count < 1 or count != int(count):
            raise ValueError(f"count must be an int, at least 1. Got {count!r} instead.")
        if not self.started or self._criterion.measure is None:
            drawn = self._pools.draw(count)
            self._pools.exclude(drawn)
            return drawn
        if self.candidates == "all":
            return self._search(count)
        chosen: list[Ints] = []
        while count and self._pools.free:
            self._pools.groups = float(min(count, MOST_GROUPS))
            drawn, choice = self._pools.draw_candidates(count)
            plan = ScorePlan(0, drawn, self._view(), choice)
            features = self._form.apply(self._source.raw(drawn))
            with one_thread():
                places, sampled, _ = best_of_groups(
                    plan, self._kernel, features, _unknown(len(drawn)), workspaces.of_this_thread()
                )
            self._pools.put_back(drawn, drawn[places], sampled)
            chosen.append(drawn[places])
            count -= len(places)
        return np.concatenate([np.zeros(0, np.int64), *chosen])

    def _search(self, count: int) -> Ints:
        out = np.flatnonzero(self._pools.status)
        search = Search(self._kernel, self._form, self._view(), self.selection, count, out)
        with self.estimator._cluster(self._source) as client:
            found = best_rows(self._source, search, client)
        self._pools.exclude(found)
        return found

    def _view(self) -> View:
        view: View = self._learner.expansion.view(0, None, np.full(1, np.inf), 0.0)
        return view

    @property
    def _kernel(self) -> Kernel:
        kernel: Kernel = self._learner.settings.kernel
        return kernel

    # Learning

    def teach(self, ids: npt.ArrayLike, labels: npt.ArrayLike) -> Self:
        """Learn the labels of some rows, in the order given; `query` need not have returned these rows.

        Parameters
        ----------
        ids : int or array of int, shape (m,)
        labels : label or array of shape (m,)
            All labels that are taught must belong to two classes.

        Returns
        -------
        ActiveLearner
        """
        given, taught = (np.atleast_1d(np.asarray(values)) for values in (ids, labels))
        taught = column_or_1d(taught)
        check_classification_targets(taught)
        if len(given) != len(taught):
            raise ValueError(f"There are {len(given)} ids, but {len(taught)} labels.")
        if not len(given):
            return self
        self._check_ids(given)
        every = np.concatenate([self.labels, taught]) if len(self.labels) else taught
        classes = np.unique(every)
        if len(classes) > 2:
            raise ValueError(f"labels must be of two classes; there are {classes.tolist()}.")
        weights = self.estimator.class_weight
        if weights is not None and len(weights) == 2 and not set(classes.tolist()) <= set(weights):
            raise ValueError(f"labels are not in class_weight, which has {list(weights)}. Got {classes.tolist()}.")
        started = self.started or (len(classes) == 2 and np.unique(every, return_counts=True)[1].min() >= self.first)
        boxes = boxes_of(classes, self.estimator.C, self.estimator.class_weight) if started else np.zeros(2)
        self._taught.append(self._source.raw(given))
        self.ids, self.labels = np.concatenate([self.ids, given]), every
        self._pools.exclude(given)
        self._current = None
        if started:
            self._learn(np.searchsorted(classes, every), boxes)
        return self

    def _check_ids(self, given: NDArray[Any]) -> None:
        total = sum(self._source.chunks)
        if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= total:
            raise ValueError(f"ids must be row numbers from 0 to {total - 1}.")
        again = np.intersect1d(given, self.ids)
        if len(again) or len(np.unique(given)) < len(given):
            raise ValueError(
                f"ids {again[:5].tolist() or given.tolist()} have already been taught, or are given twice."
            )

    def _learn(self, codes: Ints, boxes: NDArray[np.float64]) -> None:
        learner, count = self._learner, len(codes)
        first = np.zeros(0, np.int64)
        if not self.started:
            first = np.concatenate([np.flatnonzero(codes == side)[: self.first] for side in (0, 1)])
        start = 0 if self.retrain else self._learned
        rows = self._taught[-1] if start else self._rows()
        examples = Examples(MemorySource(rows), self._form, MemoryLabels(codes[start:], None), Coding.of(boxes), start)
        learner.feed(RandomOrder((count - start,), AS_GIVEN, start), first)
        LocalExecutor(learner, examples, config.threads()).run(lambda progress, seconds: False)
        self._learned = count

    def _rows(self) -> Any:
        """Return the rows that were taught."""
        if len(self._taught) > 1:
            self._taught = [stacked(self._taught)]
        return self._taught[0]

    # The model

    @property
    def estimator_(self) -> LaSVC:
        """An estimator fitted to the labels so far, made from a copy of the state that is finished when it is read.

        If no support vector is strictly between its bounds, the bias is the middle of the interval that the examples in the
        expansion allow.
        """
        if not self.started:
            raise NotFittedError(f"There are too few labels: {self.first} of each of two classes are needed.")
        if self._current is None:
            with one_thread():
                copy = finished_copy(self._learner)
            fitted, rows = self._fitted(), self._rows()
            model = fitted._model_of(self._kernel, self._form, rows[copy.examples], copy.alpha, copy.extremes)
            support = support_rows(self._source, self.ids[copy.examples])
            fitted._set_attributes(model, support, copy.codes, copy.progress, [])
            self._current = fitted
        return self._current

    def _fitted(self) -> LaSVC:
        """Make an estimator with all fitted attributes except those of the model."""
        fitted: LaSVC = clone(self.estimator)
        if hasattr(self.estimator, "feature_names_in_"):
            fitted.feature_names_in_ = self.estimator.feature_names_in_
        fitted.classes_, fitted.n_features_in_ = np.unique(self.labels), int(self._rows().shape[1])
        return fitted

    def _predictor(self) -> LaSVC:
        """Return the estimator to predict with; while there are too few labels, it predicts by their frequencies.

        Its decision value is then the same for all rows: the share of the second class minus the share of the first.
        """
        if self.started:
            return self.estimator_
        if not len(self.labels):
            raise NotFittedError("This ActiveLearner has no labels yet: call teach before predict.")
        if self._current is None:
            fitted = self._fitted()
            counts = np.unique(self.labels, return_counts=True)[1]
            value = (counts[1:].sum() - counts[0]) / counts.sum()
            nothing = np.zeros((1, 0))
            fitted.model_ = fitted._model_of(
                self._kernel, self._form, self._rows()[:0], nothing, np.full((1, 2), value, np.float64)
            )
            self._current = fitted
        return self._current

    @property
    def model_(self) -> KernelModel:
        """The model of the labels so far."""
        return self.estimator_.model_

    def decision_function(self, X: RowsLike) -> Any:
        """Compute decision values with the model of the labels so far, as `LaSVC.decision_function`.

        Until there are `first` labels of each class, the value is the same for all rows: the share of the second class among the
        labels so far minus the share of the first.
        """
        return self._predictor().decision_function(X)

    def predict(self, X: RowsLike) -> Any:
        """Predict with the model of the labels so far, as `LaSVC.predict`.

        Until there are `first` labels of each class, the prediction is the most frequent class among the labels so far.
        """
        return self._predictor().predict(X)

    def score(self, X: RowsLike, y: ColumnLike | None = None) -> float:
        """Compute the accuracy of the model of the labels so far, as `LaSVC.score`."""
        return self._predictor().score(X, y)


def _unknown(count: int) -> Targets:
    """Make placeholder targets for rows whose labels are not known."""
    return Targets(np.zeros(count, np.int64), np.ones((1, count)), np.ones((1, count)))
