"""The choice of C and γ: Jaakkola's heuristic, models for several C from one run, and the grid that shifts."""

from itertools import pairwise

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.utils import get_tags

from dasksvm import Dataset, LaSVC, ShiftingGridSearch, jaakkola_gamma
from dasksvm.estimators.search import gamma
from dasksvm.solver.kernels.registry import KERNELS

EXACT = {"epochs": "converged", "tol": 1e-6, "dtype": "float64", "random_state": 0}


def three(n=150, seed=0):
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=3, n_clusters_per_class=1, flip_y=0.1, random_state=seed
    )
    return X, np.array(["ash", "elm", "fir"])[y]


# Jaakkola's heuristic


def by_hand(X, y, order=2):
    distances = (np.abs(X[:, None, :] - X[None, :, :]) ** order).sum(axis=2) ** (1 / order)
    distances[y[:, None] == y] = np.inf
    nearest = distances.min(axis=1)
    return 0.5 / np.median(nearest[nearest > 0]) ** order


@pytest.mark.parametrize("tile", [(500, 4000), (7, 11)])
def test_gamma_is_that_of_all_distances(monkeypatch, tile):
    monkeypatch.setattr(gamma, "TILE", tile)
    X, y = three()
    assert jaakkola_gamma(X + 1e4, y) == pytest.approx(by_hand(X, y), rel=1e-6)
    few = np.where(np.abs(X) > 1, X, 0)
    assert jaakkola_gamma(few, y) == pytest.approx(by_hand(few, y))
    assert jaakkola_gamma(sp.csr_matrix(few), y) == pytest.approx(by_hand(few, y))
    assert jaakkola_gamma(sp.csr_array(few), y) == pytest.approx(by_hand(few, y))


@pytest.mark.parametrize("kernel", KERNELS)
def test_gamma_is_measured_with_the_distance_of_the_kernel(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(gamma, "TILE", (7, 11))
    X, y = three()
    X = np.where(np.abs(X) > 1, X, 0) * np.arange(1, 6)
    order = KERNELS[kernel].deviation_order
    for rows in (X, sp.csr_matrix(X)):
        assert jaakkola_gamma(rows, y, kernel=kernel) == pytest.approx(by_hand(X, y, order))
    Dataset.create(tmp_path / "data", np.maximum(X, 0), y, scale="minmax", random_state=0)
    seen = np.maximum(X, 0) / np.maximum(X, 0).max(axis=0)
    assert jaakkola_gamma(tmp_path / "data", kernel=kernel) == pytest.approx(by_hand(seen, y, order))
    if "gamma" in KERNELS[kernel].parameters:
        search = ShiftingGridSearch(LaSVC(kernel=kernel, random_state=0), C=[1.0], steps=0, folds=2, random_state=0)
        assert search.fit(X, y).best_params_["gamma"] == pytest.approx(by_hand(X, y, order))
    with pytest.raises(ValueError, match="unknown kernel 'new'"):
        jaakkola_gamma(X, y, kernel="new")


def test_gamma_of_dask_arrays_and_data_sets(tmp_path):
    X, y = three()
    expected = by_hand(X, y)
    assert jaakkola_gamma(da.from_array(X, chunks=(40, -1)), da.from_array(y, chunks=40)) == pytest.approx(expected)
    data = Dataset.create(tmp_path / "plain", X, y, chunk_rows=40, random_state=0)
    assert jaakkola_gamma(data) == pytest.approx(expected)
    few = np.maximum(X, 0)
    for rows in (few, sp.csr_matrix(few)):
        path = tmp_path / f"scaled {type(rows).__name__}"
        Dataset.create(path, rows, y, scale="minmax", random_state=0)
        assert jaakkola_gamma(path) == pytest.approx(by_hand(few / few.max(axis=0), y))


def test_gamma_of_a_sample():
    X, y = three(2000)
    y[:1900] = "ash"
    first = jaakkola_gamma(X, y, sample=60, random_state=1)
    assert first == jaakkola_gamma(X, y, sample=60, random_state=1)
    assert first != jaakkola_gamma(X, y, sample=60, random_state=2)
    # All of the small classes are there: only the anchors vary.
    assert first == pytest.approx(by_hand(X, y), rel=0.3)
    assert jaakkola_gamma(X, y, sample=2000) == pytest.approx(by_hand(X, y))


def test_gamma_where_classes_share_rows():
    X, y = three(60)
    X, y = np.vstack([X, X[:50] + 0.0]) + 100.0, np.concatenate([y, np.roll(y[:50], 1)])
    for rows in (X, X.astype(np.float32), sp.csr_matrix(X)):
        expected = by_hand(np.asarray(rows.todense() if sp.issparse(rows) else rows, np.float64), y)
        assert jaakkola_gamma(rows, y) == pytest.approx(expected)
    same = np.repeat(X[:10], 2, axis=0)
    with pytest.raises(ValueError, match="equals an example of another class"):
        jaakkola_gamma(same, np.tile([0, 1], 10))
    with pytest.raises(ValueError, match="number of classes"):
        jaakkola_gamma(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="sample must be"):
        jaakkola_gamma(X, y, sample=0)


# Several C in one run


@pytest.mark.parametrize("options", [{}, {"decision_function_shape": "ovo"}, {"kernel": "linear"}])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_path_is_the_separate_fits(options, sparse):
    X, y = three(90)
    rows = sp.csr_matrix(X) if sparse else X
    Cs = [0.1, 1.0, 10.0]
    estimator = LaSVC(gamma=0.2, class_weight={"ash": 2.0, "elm": 1.0, "fir": 1.0}, **EXACT, **options)
    models, evaluations = estimator._fit_path(rows, y, Cs)
    assert not hasattr(estimator, "model_")
    separate = 0
    for C, model in zip(Cs, models, strict=True):
        alone = clone(estimator).set_params(C=C).fit(rows, y)
        np.testing.assert_array_equal(model.predict(rows), alone.predict(rows))
        np.testing.assert_allclose(model.decision_function(rows), alone.decision_function(rows), atol=1e-4)
        if not options.get("kernel"):  # else more rows than dimensions: many α give the same w
            assert model.support_vectors.shape == alone.support_vectors_.shape
            np.testing.assert_allclose(model.coefficients, alone.dual_coef_, atol=1e-3 * C)
        assert (model.pairwise, model.width) == (alone.model_.pairwise, 5)
        separate += alone.kernel_evaluations_
    assert evaluations < 0.6 * separate


def test_a_path_of_two_classes_and_one_epoch():
    X, y = three(300)
    models, _ = LaSVC(random_state=0)._fit_path(X, y == "elm", [1.0, 10.0])
    assert [model.coefficients.shape[0] for model in models] == [1, 1]
    for C, model in zip([1.0, 10.0], models, strict=True):
        assert np.abs(model.coefficients).max() <= C
        alone = LaSVC(C=C, random_state=0).fit(X, y == "elm")
        assert np.mean(model.predict(X) == alone.predict(X)) > 0.97


def test_a_path_warns_and_fails_as_a_fit():
    X, y = three(60)
    with pytest.raises(ValueError, match="'tol' parameter"):
        LaSVC(tol=-1)._fit_path(X, y, [1.0])
    with pytest.raises(ValueError, match="number of classes"):
        LaSVC()._fit_path(X, np.zeros(60), [1.0])
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        LaSVC(epochs="converged", tol=1e-300, random_state=0)._fit_path(*three(60), [1.0, 1e3])


# The grid


class Known(ClassifierMixin, BaseEstimator):
    """A classifier whose score is a function of its parameters."""

    fits: list = []  # noqa: RUF012  of all clones

    def __init__(self, surface=None, C=1.0, gamma=1.0, kernel="rbf"):
        self.surface, self.C, self.gamma, self.kernel = surface, C, gamma, kernel

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        Known.fits.append((self.C, self.gamma, len(y)))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score(self, X, y):
        return self.surface(self.C, self.gamma)


class Peak:
    """A score that is best at one point and falls by the decades and octaves away from it."""

    def __init__(self, C, gamma):
        self.C, self.gamma = C, gamma

    def __call__(self, C, gamma):
        away = abs(np.log10(C / self.C)) + abs(np.log2(gamma / self.gamma))
        return 1.0 - 0.01 * away


def searched(surface, C=(0.1, 1, 10), gamma=(0.5, 1, 2), **options):
    Known.fits = []
    X, y = np.arange(20.0)[:, None], np.tile([0, 1], 10)
    kernel = options.pop("kernel", "rbf")
    search = ShiftingGridSearch(Known(surface, kernel=kernel), C=C, gamma=gamma, folds=2, refit=False, **options)
    search.fit(X, y)
    points = [fit[:2] for fit in Known.fits]
    assert len(points) == 2 * len(set(points)) == 2 * len(search.cv_results_["params"])
    return search, set(points)


def test_a_best_point_inside_ends_the_search():
    search, points = searched(Peak(1, 1))
    assert search.best_params_ == {"C": 1.0, "gamma": 1.0}
    assert search.best_score_ == 1.0
    assert points == {(C, gamma) for C in (0.1, 1, 10) for gamma in (0.5, 1, 2)}
    assert search.cv_results_["rank_test_score"].tolist() == [6, 2, 6, 2, 1, 2, 6, 2, 6]
    with pytest.raises(NotFittedError, match="refit=False"):
        search.predict(np.zeros((2, 1)))


@pytest.mark.parametrize(("C", "gamma"), [(1e4, 32), (1e-4, 1 / 32), (1e-3, 16), (1000, 1)])
def test_the_grid_shifts_beyond_its_edges(C, gamma):
    search, points = searched(Peak(C, gamma))
    assert search.best_params_ == pytest.approx({"C": C, "gamma": gamma})
    Cs, gammas = (sorted(set(axis)) for axis in zip(*points, strict=True))
    # One value beyond the best one on each side, none more, and no holes.
    assert len(points) == len(Cs) * len(gammas)
    assert min(Cs) == pytest.approx(min(0.1, C / 10))
    assert max(Cs) == pytest.approx(max(10, C * 10))
    assert min(gammas) == pytest.approx(min(0.5, gamma / 2))
    assert max(gammas) == pytest.approx(max(2, gamma * 2))
    assert [b / a for a, b in pairwise(Cs)] == pytest.approx([10] * (len(Cs) - 1))


def test_equal_errors_prefer_the_lower():
    search, points = searched(lambda C, gamma: 0.8)
    # One shift to both sides finds nothing better, and is the last.
    assert search.best_params_ == {"C": 0.01, "gamma": 0.25}
    assert len(points) == 16
    search, _ = searched(lambda C, gamma: 0.9 if C >= 1 and gamma >= 1 else 0.1 + 1e-12 * C, C=(0.1, 1, 10, 100))
    assert search.best_params_ == {"C": 1, "gamma": 1}
    search, _ = searched(lambda C, gamma: 0.9 if C * gamma == 1 else 0.1, C=(0.5, 1, 2))
    assert search.best_params_["C"] < search.best_params_["gamma"]


def test_shifts_have_an_end():
    with pytest.warns(ConvergenceWarning, match="after max_shifts=3"):
        search, points = searched(Peak(1e9, 1), max_shifts=3)
    assert search.best_params_["C"] == 1e4
    assert len(points) == 18
    # A shift that finds a worse point ends the search as well.
    search, points = searched(Peak(10, 1))
    assert search.best_params_["C"] == 10
    assert max(C for C, _ in points) == 100


def test_one_value_is_held():
    search, points = searched(Peak(100, 64), gamma=[3.0])
    assert search.best_params_ == {"C": 100, "gamma": 3}
    assert {gamma for _, gamma in points} == {3.0}
    search, _ = searched(Peak(100, 4), C=7, gamma=[1, 2])
    assert search.best_params_ == {"C": 7, "gamma": 4}


def test_linear_kernels_refine_c():
    search, points = searched(Peak(30, 1), gamma=None, kernel="linear")
    assert search.best_params_ == {"C": 40}
    # Of the decades 10 is nearest, and 100 is beyond the edge; of the octaves around it 40, and 80 is beyond.
    assert sorted(C for C, _ in points) == [0.1, 1, 2.5, 5, 10, 20, 40, 80, 100]
    assert search.cv_results_["param_C"].tolist() == sorted(C for C, _ in points)
    assert "param_gamma" not in search.cv_results_


def test_gamma_grid_around_the_heuristic():
    X, y = three()
    search = ShiftingGridSearch(Known(lambda C, gamma: 0.5), C=[1], steps=1, max_shifts=0, refit=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="edge"):
        search.fit(X, y)
    np.testing.assert_allclose(search.cv_results_["param_gamma"], by_hand(X, y) * np.array([0.5, 1, 2]))


# With machines that learn


@pytest.mark.filterwarnings("ignore:the best point")
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_those_of_cross_validation(sparse):
    X, y = three(75)
    rows = sp.csr_matrix(X) if sparse else X
    estimator = LaSVC(**EXACT)
    grid = {"C": (0.1, 1, 10), "gamma": (0.05, 0.5)}
    search = ShiftingGridSearch(estimator, **grid, folds=3, max_shifts=0, random_state=3)
    search.fit(rows, y)
    seed = np.random.RandomState(3).randint(1 << 31)
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    separate = 0
    for point, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        expected = cross_validate(clone(estimator).set_params(**point), rows, y, cv=folds, return_estimator=True)
        assert score == pytest.approx(expected["test_score"].mean(), abs=1e-12)
        separate += sum(fitted.kernel_evaluations_ for fitted in expected["estimator"])
    assert search.cv_results_["kernel_evaluations"].sum() < 0.6 * separate
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    table = pd.DataFrame(search.cv_results_)
    assert len(table) == 6
    assert table["rank_test_score"].min() == 1
    alone = clone(estimator).set_params(**search.best_params_).fit(rows, y)
    np.testing.assert_array_equal(search.predict(rows), alone.predict(rows))
    np.testing.assert_array_equal(search.decision_function(rows), alone.decision_function(rows))
    assert search.score(rows, y) == alone.score(rows, y)
    assert search.classes_.tolist() == ["ash", "elm", "fir"]
    assert (search.n_splits_, search.n_features_in_) == (3, 5)


def test_budgets_and_choices_see_one_c_at_a_time(monkeypatch):
    X, y = three(90)

    def never(*arguments):
        raise AssertionError("in one run")

    monkeypatch.setattr(LaSVC, "_fit_path", never)
    for options in ({"max_support": 20}, {"max_time": 10.0}, {"selection": "active"}):
        search = ShiftingGridSearch(LaSVC(**options, random_state=0), C=[1], gamma=[0.2], folds=2)
        assert search.fit(X, y).best_params_ == {"C": 1.0, "gamma": 0.2}
        assert search.cv_results_["kernel_evaluations"][0] > 0


def test_other_machines_and_clones():
    X, y = three(90)
    search = ShiftingGridSearch(SVC(), C=(1, 10, 100), gamma=(0.05, 0.2), folds=3, random_state=0)
    again = clone(search)
    assert again.get_params()["estimator__kernel"] == "rbf"
    assert again.set_params(folds=2, estimator__coef0=1.0).estimator.coef0 == 1.0
    search.fit(X, y)
    assert np.all(np.isnan(search.cv_results_["kernel_evaluations"]))
    assert isinstance(search.best_estimator_, SVC)
    assert not hasattr(search.estimator, "support_")
    assert not hasattr(ShiftingGridSearch(Known()), "decision_function")
    # scikit-learn 1.6 does not say of its SVC that it takes sparse rows.
    assert get_tags(search).input_tags.sparse == get_tags(SVC()).input_tags.sparse
    assert get_tags(ShiftingGridSearch(LaSVC())).input_tags.sparse
    assert not get_tags(ShiftingGridSearch(Known())).input_tags.sparse
    repeated = clone(search).fit(X, y)
    np.testing.assert_array_equal(repeated.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_a_data_frame_keeps_its_names():
    X, y = three(90)
    frame = pd.DataFrame(X, columns=list("abcde"))
    search = ShiftingGridSearch(LaSVC(random_state=0), C=[1], gamma=[0.2], folds=2).fit(frame, y)
    assert search.predict(frame).shape == (90,)
    assert search.best_estimator_.feature_names_in_.tolist() == list("abcde")


def test_grid_search_of_scikit_learn():
    X, y = three()
    search = GridSearchCV(LaSVC(random_state=0), {"C": [0.1, 10], "gamma": [0.05, "scale"]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.7
    assert search.predict(X[:5]).shape == (5,)


def test_what_is_refused(tmp_path):
    X, y = three(60)
    data = Dataset.create(tmp_path / "data", X, y, random_state=0)
    for rows in (data, data.path, da.from_array(X)):
        with pytest.raises(ValueError, match="pass a sample"):
            ShiftingGridSearch(LaSVC()).fit(rows, y)
    for options, words in (
        ({"C": (1, -1)}, "C must be positive"),
        ({"C": ()}, "C must be positive"),
        ({"gamma": (0, 1)}, "gamma must be positive"),
        ({"folds": 1}, "'folds' parameter"),
        ({"steps": -1}, "'steps' parameter"),
        ({"refit": 1}, "'refit' parameter"),
    ):
        with pytest.raises(ValueError, match=words):
            ShiftingGridSearch(LaSVC(), **options).fit(X, y)
    with pytest.raises(ValueError, match="does not use it"):
        ShiftingGridSearch(LaSVC(kernel="linear"), gamma=(1, 2)).fit(X, y)
    with pytest.raises(ValueError, match="no parameter C"):
        ShiftingGridSearch(KNeighborsClassifier()).fit(X, y)
    with pytest.raises(NotFittedError):
        ShiftingGridSearch(LaSVC()).predict(X)
