"""More than two classes: problems side by side over shared kernel rows."""

import csv

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits, make_classification
from sklearn.svm import SVC
from sklearn.utils import shuffle

from dasksvm import Dataset, HeldOut, LaSVC, load, train
from dasksvm.cli.main import main
from dasksvm.data.coding import Coding
from dasksvm.model.prediction import compare_with_labels
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.learner import TwoClassLearner
from tests.helpers import Rows, lasvm_settings, run

KERNEL = Kernel("rbf", 0.3)


def four(n=400, seed=0):
    X, y = make_classification(
        n, 6, n_informative=5, n_redundant=0, n_classes=4, n_clusters_per_class=1, flip_y=0.1, random_state=seed
    )
    return X, y


class Coded(Rows):
    """Rows with the targets of a coding."""

    def __init__(self, X, y, coding):
        super().__init__(X, y, np.ones(len(y)))
        self.codes, self.coding = np.asarray(y, np.int64), coding

    def targets(self, rows):
        return self.coding.targets(self.codes[rows], np.ones(len(rows)))


def learned(X, y, coding, cache_bytes=50 << 20, threads=1):
    """Passes to the optimum in float64, from the same seeds whatever the problems."""
    settings = lasvm_settings(KERNEL, tau=1e-7, problems=coding.problems, epochs=0, cache_bytes=cache_bytes)
    learner = TwoClassLearner(settings)
    order = RandomOrder((len(y),), 1)
    ids = order.rows(0, 0, len(y))
    learner.feed(order, np.concatenate([ids[y[ids] == label][:5] for label in range(4)]))
    run(learner, Coded(X, y, coding), threads)
    learner.expansion.check(1e-8)
    return learner


def by_example(learner, count):
    alpha, _, examples, _ = learner.solution()
    out = np.zeros((len(alpha), count))
    out[:, examples] = alpha
    return out


@pytest.mark.parametrize("pairwise", [False, True])
def test_each_problem_behaves_as_if_alone(pairwise):
    X, y = four(90)
    coding = Coding.of(np.full(4, 3.0), pairwise=pairwise, factors=(1.0, 0.1))
    assert coding.problems == (12 if pairwise else 8)
    together = learned(X, y, coding, threads=2)
    found, duals = by_example(together, len(y)), together.progress().dual
    separate = 0
    for at in range(coding.problems):
        alone = learned(X, y, Coding(coding.signs[[at]], coding.bounds[[at]]))
        assert duals[at] == pytest.approx(alone.progress().dual[0], rel=1e-10)
        np.testing.assert_allclose(found[at], by_example(alone, len(y))[0], atol=1e-5)
        separate += alone.progress().evaluations
    assert together.progress().evaluations < 0.6 * separate
    small = learned(X, y, coding, cache_bytes=1)
    np.testing.assert_allclose(found, by_example(small, len(y)), atol=1e-5)


def test_a_coding_names_sides_and_boxes():
    boxes = np.array([1.0, 2.0, 4.0])
    pairs = Coding.of(boxes, pairwise=True)
    assert pairs.signs.tolist() == [[1, -1, 0], [1, 0, -1], [0, 1, -1]]
    assert pairs.bounds.tolist() == [[1, 2, 0], [1, 0, 4], [0, 2, 4]]
    two = Coding.of(boxes[:2], factors=(1, 10))
    assert two.signs.tolist() == [[-1, 1], [-1, 1]]
    assert two.bounds.tolist() == [[1, 2], [10, 20]]
    codes, sign, bound = Coding.of(boxes).targets(np.array([2, 0]), np.array([1.0, 0.5]))
    assert codes.tolist() == [2, 0]
    assert sign.tolist() == [[-1, 1], [-1, -1], [1, -1]]
    assert bound.tolist() == [[4, 0.5], [4, 0.5], [4, 0.5]]


def test_the_optimum_is_that_of_separate_machines():
    X, y = four()
    labels = np.array(["d", "c", "b", "a"])[y]
    options = {"C": 5.0, "gamma": 0.2, "class_weight": {"a": 2.0, "b": 1.0, "c": 0.5, "d": 1.0}}
    model = LaSVC(**options, epochs="converged", tol=1e-5, dtype="float64", random_state=0).fit(X, labels)
    bounds = np.array([options["class_weight"][label] for label in labels])
    values = []
    for label in "abcd":
        alone = SVC(C=5.0, gamma=0.2, tol=1e-6).fit(X, labels == label, sample_weight=bounds)
        values.append(alone.decision_function(X))
    np.testing.assert_allclose(model.decision_function(X), np.transpose(values), atol=1e-3)
    assert model.score(X, labels) == np.mean(np.array(list("abcd"))[np.argmax(values, axis=0)] == labels)
    assert model.n_support_.tolist() == [np.sum(labels[model.support_] == label) for label in "abcd"]
    assert np.all(np.diff(np.searchsorted(list("abcd"), labels[model.support_])) >= 0)
    primal, dual, gap = model.duality_gap(X, labels)
    assert dual == pytest.approx(model.dual_objective_)
    assert 0 <= gap < 1e-4 * primal


def test_pairs_vote_as_those_of_scikit_learn():
    X, y = four()
    model = LaSVC(
        C=5, gamma=0.2, decision_function_shape="ovo", epochs="converged", tol=1e-5, dtype="float64", random_state=0
    )
    model.fit(X, y)
    peer = SVC(C=5, gamma=0.2, tol=1e-6, decision_function_shape="ovo", break_ties=False).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), peer.decision_function(X), atol=1e-3)
    votes = SVC(C=5, gamma=0.2, tol=1e-6, decision_function_shape="ovr", break_ties=True).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), votes.predict(X))
    assert set(model.support_) == set(peer.support_)


def test_a_model_of_pairs_is_saved(tmp_path):
    X, y = four(150)
    for shape in ("ovr", "ovo"):
        model = LaSVC(decision_function_shape=shape, random_state=0).fit(X, y)
        model.model_.save(tmp_path / shape)
        again = load(tmp_path / shape)
        assert again.pairwise == (shape == "ovo")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(model.predict(da.from_array(X, chunks=(40, -1))).compute(), model.predict(X))


def test_a_stream_of_blocks_and_a_held_out_set():
    X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    X = X / 16
    options = {"C": 10, "gamma": 0.05, "random_state": 0}
    watched = HeldOut(X[1400:], y[1400:], every=400)
    whole = train((X[:1400], y[:1400]), LaSVC(**options), callbacks=[watched]).estimator
    assert whole.score(X[1400:], y[1400:]) > 0.94
    assert watched.entries[-1]["error"] < 0.07
    assert len(whole.history_[-1]["dual"]) == 10
    stream = LaSVC(**options)
    for start in range(0, 1400, 350):
        stream.partial_fit(X[start : start + 350], y[start : start + 350], classes=np.arange(10))
    assert stream.score(X[1400:], y[1400:]) > 0.94
    assert LaSVC(**options, selection="gradient", max_examples=600).fit(X[:1400], y[:1400]).score(X, y) > 0.9


def test_many_classes():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(260, 8)) * 5
    y = np.repeat(np.arange(260), 2)
    X = centres[y] + 0.1 * rng.normal(size=(520, 8))
    assert LaSVC(C=10, gamma=0.1, random_state=0).fit(X, y).score(X, y) == 1.0


def test_a_data_set_at_the_command_line(tmp_path):
    X, y = four(300)
    names = np.array(["ash", "elm", "fir", "oak"])[y]
    data = Dataset.create(tmp_path / "data.zarr", X, names, chunk_rows=70, random_state=0)

    def call(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.output

    call("train", data.path, tmp_path / "model", "--c", 5, "--decision-function-shape", "ovo")
    model = load(tmp_path / "model")
    assert model.pairwise
    predicted = model.predict(X)
    counts = compare_with_labels(model, data).confusion
    assert counts.sum() == 300
    assert counts.trace() == np.sum(predicted == names)
    assert counts[0, 3] == np.sum((names == "ash") & (predicted == "oak"))
    assert f"({300 - counts.trace()} of 300)" in call("evaluate", data.path, tmp_path / "model")
    assert "ash, elm, fir, oak" in call("info", tmp_path / "model")
    call("predict", data.path, tmp_path / "model", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header[:4] == ["row", "label", "decision ash not elm", "decision ash not fir"]
    assert {int(row[0]): row[1] for row in rows} == dict(enumerate(predicted))


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_a_class_that_has_not_come_yet(shape):
    X, y = four(600)
    stream = LaSVC(C=5, gamma=0.2, decision_function_shape=shape, random_state=0)
    early = y[:300] < 3
    stream.partial_fit(X[:300][early], y[:300][early], classes=np.arange(4))
    # Without the fourth class its problems have nothing to solve, and the other three are told apart.
    assert stream.score(X[:300][early], y[:300][early]) > 0.8
    assert np.isfinite(stream.duality_gap(X[:300][early], y[:300][early])[1])
    learner = stream._running[0]
    assert np.count_nonzero(learner.expansion.working.holders) < 0.95 * early.sum()
    stream.partial_fit(X[300:], y[300:])
    assert stream.score(X, y) > 0.75
    other = {"ovr": "ovo", "ovo": "ovr"}[shape]
    with pytest.raises(ValueError, match="two-class problems differ"):
        stream.set_params(decision_function_shape=other).partial_fit(X, y)


def test_budgets_that_end_among_the_first_examples():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(130), 6)
    X = rng.normal(size=(130, 6))[y] + 0.1 * rng.normal(size=(780, 6))
    assert LaSVC(max_time=1e-9, random_state=0).fit(X, y).n_support_.sum() > 0
    X, y = four(3000)
    model = LaSVC(max_support=4, random_state=0).fit(X, y)
    assert model.kernel_evaluations_ < 20_000
