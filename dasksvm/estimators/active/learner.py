"""ActiveLearner: an SVM that asks for the labels it learns from (paper 1, section 4.5)."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dasksvm import config
from dasksvm.config import workspaces
from dasksvm.config.blas import one_thread
from dasksvm.data.chunked import stacked
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import Examples, MemoryLabels, MemorySource
from dasksvm.estimators._base import opened
from dasksvm.estimators._fitting import CONVERGED, support_rows
from dasksvm.estimators.active.pool import Search, best_rows
from dasksvm.estimators.lasvc import LaSVC
from dasksvm.estimators.parameters import check_parameters, flag, integer, one_of
from dasksvm.estimators.problem import boxes_of
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.choice import best_of_groups
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.preview import finished_copy
from dasksvm.solver.engine.selection import AS_GIVEN, MOST_GROUPS, Pools, RandomOrder, Selection
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import ScorePlan, Targets
from dasksvm.solver.state.expansion import SEEDS
from dasksvm.training.local_executor import LocalExecutor


def criteria_without_labels() -> tuple[str, ...]:
    """List the selection criteria that a pool without labels allows."""
    return tuple(name for name, criterion in CRITERIA.items() if not criterion.labels)


class ActiveLearner:
    """Learn from a pool of rows by asking for few of their labels (paper 1, section 4.5).

    Every label that is taught makes one iteration of LASVM. No label is read from the pool, even if it is a data set with labels;
    one with labels of more than two classes is refused, since an ActiveLearner tells two classes apart.

    Parameters
    ----------
    estimator : LaSVC
        Its parameters are used: kernel, C, class weights as a dict, cache, seed, client. It is left as it is.
    pool : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        An id is the number of a row; of a data set `Dataset.source_rows(ids)` are the rows of what it was made from.
    selection : {"active", "autoactive", "random"}, default="active"
        What a query asks for: the row nearest to the boundary of `candidates` random ones; autoactive sampling ends early (see
        `LaSVC`); any row, for comparison.
    candidates : int or "all", default=50
        With "all" a query searches the whole pool, in parallel: on the estimator's client, or the current one, unless the pool
        is an array in memory.
    first : int, default=5
        Labels of each class before queries follow the boundary; until then they are random.
    retrain : bool, default=False
        Train to the optimum of all labels so far each time, beginning with the model before, instead of one iteration a label.

    Attributes
    ----------
    ids : ndarray of int64, shape (t,)
        Rows that were taught, in that order.
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
        pool: Any,
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
        pool = opened(pool)
        if isinstance(pool, Dataset) and len(pool.classes) > 2:
            raise ValueError(
                f"an ActiveLearner needs a pool of two classes; {pool.path} has {pool.classes.tolist()}. "
                "To teach other labels than those that it has, write it without labels."
            )
        epochs = CONVERGED if retrain else 1
        self._source, self._learner, self._form, seed = self.estimator._for_labels_to_come(pool, epochs)
        most = 1 if candidates == "all" else int(candidates)
        self._pools = Pools(RandomOrder(self._source.chunks, seed), Selection(selection, most))
        self._pools.begin(np.zeros(0, np.int64))
        self._taught: list[Any] = []
        self.ids: Ints = np.zeros(0, np.int64)
        self.labels: NDArray[Any] = np.zeros(0)
        self._fed = 0
        self._shown: LaSVC | None = None

    @property
    def started(self) -> bool:
        """Whether there are labels enough of both classes."""
        return self._fed > 0

    # Asking

    def query(self, count: int = 1) -> Ints:
        """Choose rows whose labels would help most; none that was asked for or taught before.

        Parameters
        ----------
        count : int, default=1
            All are chosen by the present model; fewer are returned when the pool has no more.

        Returns
        -------
        ndarray of int64
            Their ids.
        """
        if count < 1 or count != int(count):
            raise ValueError(f"count must be an int, at least 1. Got {count!r} instead.")
        if not self.started or self._criterion.measure is None:
            drawn = self._pools.draw(count)
            self._pools.take_out(drawn)
            return drawn
        if self.candidates == "all":
            return self._search(count)
        chosen: list[Ints] = []
        while count and self._pools.free:
            self._pools.groups = float(min(count, MOST_GROUPS))
            drawn, choice = self._pools.ask(count)
            plan = ScorePlan(0, drawn, self._view(), choice)
            features = self._form.apply(self._source.raw(drawn))
            with one_thread():
                places, sampled, _ = best_of_groups(
                    plan, self._kernel, features, _unknown(len(drawn)), workspaces.of_this_thread()
                )
            self._pools.settle(drawn, drawn[places], sampled)
            chosen.append(drawn[places])
            count -= len(places)
        return np.concatenate([np.zeros(0, np.int64), *chosen])

    def _search(self, count: int) -> Ints:
        out = np.flatnonzero(self._pools.mark)
        search = Search(self._kernel, self._form, self._view(), self.selection, count, out)
        with self.estimator._cluster(self._source) as client:
            found = best_rows(self._source, search, client)
        self._pools.take_out(found)
        return found

    def _view(self) -> Any:
        return self._learner.expansion.view(0, None, np.full(1, np.inf), 0.0)

    @property
    def _kernel(self) -> Any:
        return self._learner.settings.kernel

    # Learning

    def teach(self, ids: Any, labels: Any) -> Self:
        """Learn the labels of some rows, in the order given; they need not have been asked for.

        Parameters
        ----------
        ids : int or array of int, shape (m,)
        labels : label or array of shape (m,)
            Of two classes.

        Returns
        -------
        ActiveLearner
        """
        given, said = (np.atleast_1d(np.asarray(values)) for values in (ids, labels))
        said = column_or_1d(said)
        check_classification_targets(said)
        if len(given) != len(said):
            raise ValueError(f"There are {len(given)} ids, but {len(said)} labels.")
        if not len(given):
            return self
        self._check_ids(given)
        every = np.concatenate([self.labels, said]) if len(self.labels) else said
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
        self._pools.take_out(given)
        self._shown = None
        if started:
            self._learn(np.searchsorted(classes, every), boxes)
        return self

    def _check_ids(self, given: NDArray[Any]) -> None:
        total = sum(self._source.chunks)
        if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= total:
            raise ValueError(f"ids must be numbers of rows, from 0 to {total - 1}.")
        again = np.intersect1d(given, self.ids)
        if len(again) or len(np.unique(given)) < len(given):
            raise ValueError(f"ids {again[:5].tolist() or given.tolist()} were taught already, or are given twice.")

    def _learn(self, codes: Ints, boxes: NDArray[np.float64]) -> None:
        learner, count = self._learner, len(codes)
        first = np.zeros(0, np.int64)
        if not self.started:
            first = np.concatenate([np.flatnonzero(codes == side)[: self.first] for side in (0, 1)])
        start = 0 if self.retrain else self._fed
        rows = self._taught[-1] if start else self._rows()
        examples = Examples(MemorySource(rows), self._form, MemoryLabels(codes[start:], None), Coding.of(boxes), start)
        learner.feed(RandomOrder((count - start,), AS_GIVEN, start), first)
        LocalExecutor(learner, examples, config.threads()).run(lambda progress, seconds: False)
        self._fed = count

    def _rows(self) -> Any:
        """The rows that were taught."""
        if len(self._taught) > 1:
            self._taught = [stacked(self._taught)]
        return self._taught[0]

    # What was learned

    @property
    def estimator_(self) -> LaSVC:
        """The estimator, fitted to the labels so far: a copy is finished when it is asked for.

        Where no support vector is free, its bias is the middle of what the expansion leaves.
        """
        if not self.started:
            raise NotFittedError(f"There are too few labels yet: {self.first} of each of two classes are needed.")
        if self._shown is None:
            with one_thread():
                copy = finished_copy(self._learner)
            fitted, rows = self._fitted(), self._rows()
            model = fitted._model_of(self._kernel, self._form, rows[copy.examples], copy.alpha, copy.extremes)
            support = support_rows(self._source, self.ids[copy.examples])
            fitted._show(model, support, copy.codes, copy.progress, [])
            self._shown = fitted
        return self._shown

    def _fitted(self) -> LaSVC:
        """Make an estimator that lacks nothing but a model."""
        fitted: LaSVC = clone(self.estimator)
        if hasattr(self.estimator, "feature_names_in_"):
            fitted.feature_names_in_ = self.estimator.feature_names_in_
        fitted.classes_, fitted.n_features_in_ = np.unique(self.labels), int(self._rows().shape[1])
        return fitted

    def _predictor(self) -> LaSVC:
        """Give what predicts: the estimator, or as long as there are too few labels for one, the prior of the labels.

        The prior has the same decision value everywhere: the share of the second class less that of the first.
        """
        if self.started:
            return self.estimator_
        if not len(self.labels):
            raise NotFittedError("This ActiveLearner has no labels yet: teach it some before it predicts.")
        if self._shown is None:
            fitted = self._fitted()
            counts = np.unique(self.labels, return_counts=True)[1]
            value = (counts[1:].sum() - counts[0]) / counts.sum()
            nothing = np.zeros((1, 0))
            fitted.model_ = fitted._model_of(
                self._kernel, self._form, self._rows()[:0], nothing, np.full((1, 2), value, np.float64)
            )
            self._shown = fitted
        return self._shown

    @property
    def model_(self) -> KernelModel:
        """The model of the labels so far."""
        return self.estimator_.model_

    def decision_function(self, X: Any) -> Any:
        """As `LaSVC.decision_function`, of the labels so far.

        Until there are `first` labels of each class, the same value for all rows: the share of the second class among the
        labels so far less that of the first.
        """
        return self._predictor().decision_function(X)

    def predict(self, X: Any) -> Any:
        """As `LaSVC.predict`, of the labels so far.

        Until there are `first` labels of each class, the class that most of the labels so far have.
        """
        return self._predictor().predict(X)

    def score(self, X: Any, y: Any = None) -> float:
        """As `LaSVC.score`, of the labels so far."""
        return self._predictor().score(X, y)


def _unknown(count: int) -> Targets:
    """Stand for labels that nobody has said."""
    return Targets(np.zeros(count, np.int64), np.ones((1, count)), np.ones((1, count)))
