"""Models as LIBSVM's text: what LIBSVM makes of them, what is made of its own, and an error for everything else.

`svm-predict` tells labels only. So decision values are compared with those of the text as LIBSVM's documentation explains
it, computed here; and with LIBSVM itself by a shift of the threshold in the file: the label changes at the decision value.

What LIBSVM's programs say is in the files of `tests/libsvm`, which were made with them; where the programs are installed,
they are asked about random models too.
"""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from dasksvm import KernelModel, LaSVC
from dasksvm.data.statistics import Scaling
from dasksvm.model.libsvm import without_scaling
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from tests.libsvm import FOLDER, NEAR, rows_of, values_of_text, write_rows
from tests.models import some_model

PROGRAMS = all(map(shutil.which, ("svm-train", "svm-predict")))
TRAINED = sorted(path.stem for path in FOLDER.glob("trained-*.model"))
WRITTEN = sorted(path.stem for path in FOLDER.glob("written-*.model"))


def libsvm(tmp_path, path, X):
    """Predict with Debian's program."""
    rows = write_rows(tmp_path / "rows", X, np.zeros(len(X), int))
    run("svm-predict", "-q", rows, path, tmp_path / "labels")
    return np.loadtxt(tmp_path / "labels", ndmin=1).astype(int)


def run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)


def undecided(model, X):
    """Tell where several classes have the most votes."""
    if not model.pairwise:
        return np.zeros(len(X), bool)
    first, second = np.triu_indices(len(model.classes), 1)
    values = model.decision_function(X)
    votes = np.array([[np.sum(np.where(v > 0, first, second) == c) for c in range(len(model.classes))] for v in values])
    return np.sum(votes == votes.max(axis=1, keepdims=True), axis=1) > 1


def sayable(seed):
    """Make a random model that the format can say: integers as labels, no rest of a class, a scaling that can be folded."""
    model, X = some_model(seed, text=False, pairwise=True)
    if model.scaling is not None:
        uniform = Scaling(model.scaling.offset, np.full(model.width, 0.7))
        folds = {"rbf": uniform, "linear": model.scaling}
        scaling = folds.get(model.kernel.name, Scaling(np.zeros(model.width), model.scaling.factor))
        object.__setattr__(model, "scaling", scaling)
    return model, X


def test_100_random_models_come_back(tmp_path):
    path, ties = tmp_path / "model", 0
    for seed in range(100):
        model, X = sayable(seed)
        model.to_libsvm(path)
        again, values = KernelModel.from_libsvm(path), model.decision_function(X)
        scale = 1.0 + np.abs(values).max()
        assert again.classes.tolist() == model.classes.tolist()
        assert again.width == model.width
        assert np.abs(again.decision_function(X) - values).max() < 1e-12 * scale, seed
        assert np.array_equal(again.predict(X), model.predict(X))
        told, labels = values_of_text(path, X)
        assert np.abs(told - values).max() < 1e-9, seed
        assert sorted(labels) == model.classes.tolist()
        if PROGRAMS:
            theirs, tied = libsvm(tmp_path, path, X), undecided(model, X)
            assert np.array_equal(theirs[~tied], model.predict(X)[~tied]), seed
            ties += tied.sum()
    assert ties < 1000
    assert [file.name for file in tmp_path.glob("model*")] == ["model"]


def assert_values_are_those_of_the_text(model, path, X):
    values, labels = values_of_text(path, X)
    ours, at = model.decision_function(X), 0
    first, second = np.triu_indices(len(labels), 1)
    pairs = list(zip(model.classes[first], model.classes[second], strict=True))
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            if len(labels) == 2:
                mine = ours[:, 0] * (1 if one > other else -1)
            else:
                mine = ours[:, pairs.index((one, other))] if one < other else -ours[:, pairs.index((other, one))]
            assert np.abs(mine - values[:, at]).max() < NEAR
            at += 1


def test_there_are_files_of_every_kernel_and_kind():
    names = ("linear", "polynomial", "rbf", "sigmoid")
    kinds = [f"{name}-{classes}" for name in names for classes in (2, 4)]
    assert sorted(f"trained-{kind}" for kind in [*kinds, "nu", "probability"]) == TRAINED
    assert len(WRITTEN) == 12
    heads = [(FOLDER / f"{name}.model").read_text() for name in WRITTEN]
    assert {re.search(r"^kernel_type (\S+)$", head, re.M)[1] for head in heads} == set(names)
    assert sum(file.stat().st_size for file in FOLDER.iterdir() if file.is_file()) < 200_000


@pytest.mark.parametrize("name", TRAINED)
def test_what_svm_train_wrote_predicts_as_svm_predict(tmp_path, name):
    path, theirs = FOLDER / f"{name}.model", np.loadtxt(FOLDER / f"{name}.labels").astype(int)
    rows = FOLDER / f"rows-{4 if name.endswith('-4') else 2}.txt"
    X, y = rows_of(rows, 4)
    model = KernelModel.from_libsvm(path)
    assert model.classes.tolist() == sorted(set(y.tolist()))
    tied = undecided(model, X)
    assert tied.mean() < 0.2
    assert np.array_equal(model.predict(X)[~tied], theirs[~tied])
    assert_values_are_those_of_the_text(model, path, X)
    # And as it is written again.
    model.to_libsvm(tmp_path / "model")
    assert_values_are_those_of_the_text(model, tmp_path / "model", X)


def test_probabilities_are_left_out():
    text = (FOLDER / "trained-probability.model").read_text()
    assert "probA" in text
    assert "nu_svc" in (FOLDER / "trained-nu.model").read_text()


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_written_is_what_svm_predict_read(tmp_path, name):
    """Decision values are those that LIBSVM has of the file, and today the same file is written of the same model."""
    path, said = FOLDER / f"{name}.model", json.loads((FOLDER / f"{name}.json").read_text())
    model = KernelModel.from_libsvm(path)
    X, _ = rows_of(FOLDER / f"{name}.rows", model.width)
    tied = undecided(model, X)
    assert np.array_equal(model.predict(X)[~tied], np.array(said["labels"])[~tied])
    if len(model.classes) == 2:
        first = values_of_text(path, X)[1][0]
        ours = model.decision_function(X)[:, 0] * (1 if first == model.classes[1] else -1)
        assert np.abs(ours - said["values"]).max() < 2 * NEAR * max(1.0, np.abs(ours).max())
    assert_values_are_those_of_the_text(model, path, X)
    model.to_libsvm(tmp_path / "model")
    assert (tmp_path / "model").read_text() == path.read_text()


def assert_libsvm_agrees(tmp_path, model, X, path, write=None):
    """Shift the threshold of a file of two classes to both sides of each decision value, and see the label change."""
    if write is not None:
        write(path)
    text = path.read_text()
    rho = float(re.search(r"^rho (\S+)$", text, re.M)[1])
    values = values_of_text(path, X)[0][:, 0]
    first = int(re.search(r"^label (\S+)", text, re.M)[1])
    ours = model.decision_function(X)[:, 0] * (1 if first == model.classes[1] else -1)
    assert np.abs(values - ours).max() < 1e-9
    for row, value in zip(X, ours, strict=True):
        near = 1e-9 * max(1.0, abs(value))
        for shift, positive in ((value - near, True), (value + near, False)):
            path.write_text(re.sub(r"^rho .*$", f"rho {rho + shift:.17g}", text, flags=re.M))
            assert (libsvm(tmp_path, path, row[None])[0] == first) == positive
    path.write_text(text)


if PROGRAMS:

    @pytest.mark.parametrize("seed", range(8))
    def test_svm_predict_has_the_same_decision_values(tmp_path, seed):
        model, X = some_model(seed, classes=2, text=False, scaled=False)
        assert_libsvm_agrees(tmp_path, model, X[:3], tmp_path / "model", model.to_libsvm)

    @pytest.mark.parametrize("kernel", range(4))
    @pytest.mark.parametrize("classes", [2, 4])
    def test_models_of_svm_train(tmp_path, rng, kernel, classes):
        X = rng.normal(size=(120, 4)) * (rng.random((120, 4)) < 0.8)
        y = np.array([3, -1, 7, 2])[np.minimum((np.abs(X[:, 0]) * 2).astype(int), classes - 1)]
        rows = write_rows(tmp_path / "rows", X, y)
        options = ["-t", kernel, "-g", 0.3, "-r", 0.5, "-d", 2, "-c", 2, "-q"]
        run("svm-train", *options, rows, tmp_path / "model")
        model = KernelModel.from_libsvm(tmp_path / "model")
        assert model.classes.tolist() == sorted(set(y.tolist()))
        theirs, tied = libsvm(tmp_path, tmp_path / "model", X), undecided(model, X)
        assert tied.mean() < 0.2
        assert np.array_equal(model.predict(X)[~tied], theirs[~tied])
        assert_values_are_those_of_the_text(model, tmp_path / "model", X)
        if classes == 2:
            assert_libsvm_agrees(tmp_path, model, X[:2], tmp_path / "model")


def test_a_trained_model_and_its_pairs(tmp_path, rng):
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)
    model = LaSVC(random_state=0, decision_function_shape="ovo").fit(X, y).model_
    model.to_libsvm(tmp_path / "model")
    again = KernelModel.from_libsvm(tmp_path / "model")
    # Each support vector is of one class, and in the file once.
    assert len(again.support_vectors) == len(model.support_vectors)
    assert again.classes.dtype == np.int64
    assert np.abs(again.decision_function(X) - model.decision_function(X)).max() < 1e-12


def test_the_last_features_are_not_forgotten_and_may_be_said(tmp_path):
    model = KernelModel(Kernel("rbf"), np.diag([1.0, 2.0, 0.0])[:2], np.ones((1, 2)), np.zeros(1), np.array([0, 1]))
    model.to_libsvm(tmp_path / "model")
    assert KernelModel.from_libsvm(tmp_path / "model").width == 3
    assert KernelModel.from_libsvm(tmp_path / "model", features=9).width == 9
    with pytest.raises(ValueError, match="3 features, more than the 2 that were expected"):
        KernelModel.from_libsvm(tmp_path / "model", features=2)


def test_rows_are_dense_or_sparse_as_they_are_filled(tmp_path):
    for vectors, sparse in [(np.ones((3, 9)), False), (np.eye(9), True)]:
        model = KernelModel(Kernel("rbf"), vectors, np.ones((1, len(vectors))), np.zeros(1), np.array([0, 1]))
        model.to_libsvm(tmp_path / "model")
        assert sp.issparse(KernelModel.from_libsvm(tmp_path / "model").support_vectors) == sparse


def test_a_model_without_support_vectors(tmp_path):
    model = KernelModel(Kernel("linear"), np.zeros((0, 2)), np.zeros((1, 0)), np.array([0.5]), np.array([0, 1]))
    model.to_libsvm(tmp_path / "model")
    again = KernelModel.from_libsvm(tmp_path / "model", features=2)
    assert again.decision_function(np.ones((3, 2))).tolist() == [[0.5]] * 3
    with pytest.raises(ValueError, match="0 features"):
        KernelModel.from_libsvm(tmp_path / "model")


@pytest.mark.parametrize("kernel", [name for name, formula in KERNELS.items() if formula.libsvm])
@pytest.mark.parametrize(("shift", "sparse"), [(0.0, False), (1.5, False), (0.0, True)])
@pytest.mark.parametrize("even", [False, True])
def test_a_scaling_is_folded_or_refused(kernel, shift, even, sparse, rng):
    factor = np.full(4, 0.6) if even else rng.uniform(0.5, 2.0, 4)
    scaling = Scaling(shift * rng.normal(size=4), factor)
    vectors = rng.normal(size=(7, 4))
    vectors = sp.csr_matrix(vectors) if sparse else vectors
    model = KernelModel(
        Kernel(kernel, 0.4, 0.3, 3), vectors, rng.normal(size=(1, 7)), np.ones(1), np.array([0, 1]), scaling
    )
    X = rng.normal(size=(30, 4))
    if kernel == "linear" or (even if kernel == "rbf" else not shift):
        plain = without_scaling(model)
        assert plain.scaling is None
        assert np.abs(plain.decision_function(X) - model.decision_function(X)).max() < 1e-12
    else:
        with pytest.raises(ValueError, match=f"cannot be included in a model with kernel {kernel}"):
            without_scaling(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": True, "classes": 2}, "labels must be integers"),
        ({"classes": 3, "pairwise": False}, 'train with decision_function_shape="ovo"'),
    ],
)
def test_what_cannot_be_said_leaves_nothing(tmp_path, changes, message):
    model, _ = some_model(1, **({"text": False, "scaled": False} | changes))
    with pytest.raises(ValueError, match=message):
        model.to_libsvm(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("labels", [[0.5, 1.0], [False, True], [0, 1 << 40]])
def test_labels_that_are_no_integers(tmp_path, labels):
    model = KernelModel(Kernel("rbf"), np.eye(2), np.ones((1, 2)), np.zeros(1), np.array(labels))
    with pytest.raises(ValueError, match="labels must be integers of 32 bits"):
        model.to_libsvm(tmp_path / "model")


def test_values_that_are_not_finite(tmp_path):
    model = KernelModel(Kernel("rbf"), np.eye(2), np.ones((1, 2)), np.array([np.inf]), np.array([0, 1]))
    with pytest.raises(ValueError, match="not finite"):
        model.to_libsvm(tmp_path / "model")


TEXT = """svm_type c_svc
kernel_type polynomial
degree 3
gamma 0.5
coef0 0
nr_class 3
total_sv 3
rho 0.1 0.2 0.3
label 1 2 3
nr_sv 1 1 1
SV
1 0.25 1:1 2:0.5
-1 0.5 1:-1
-0.25 -0.5 2:2
"""


def test_the_header_in_any_order(tmp_path):
    head, body = TEXT.split("SV\n")
    (tmp_path / "a").write_text(TEXT)
    (tmp_path / "b").write_text(
        "\n".join(reversed(head.split("\n"))).strip() + "\r\nSV\r\n" + body.replace("\n", "\r\n")
    )
    X = np.ones((1, 2))
    a, b = (KernelModel.from_libsvm(tmp_path / name).decision_function(X) for name in "ab")
    assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("c_svc", "one_class", "line 1: svm_type: 'one_class' is not a classifier"),
        ("c_svc", "epsilon_svr", "line 1: svm_type: 'epsilon_svr' is not a classifier"),
        ("polynomial", "precomputed", "line 2: kernel_type: 'precomputed' is not one of"),
        ("degree 3", "degree 0", "line 3: degree: a value is not in the range 1 to"),
        ("degree 3", "degree 3.5", "line 3: degree: '3.5' is not an integer"),
        ("degree 3", "degree 99999999999", "line 3: degree: a value is not in"),
        ("gamma 0.5", "gamma nan", "line 4: gamma: 'nan' is not a finite number"),
        ("gamma 0.5", "gamma -1", "line 4: gamma: it is negative"),
        ("gamma 0.5", "gamma 1_0", "line 4: gamma: '1_0' is not a finite number"),
        ("gamma 0.5\n", "", "its header has no gamma"),
        ("coef0 0", "coef0", "line 5: coef0: 0 values, expected 1"),
        ("nr_class 3", "nr_class 2", "line 9: label: expected 2 to"),
        ("nr_class 3", f"nr_class {'9' * 5000}", "line 6: nr_class: '9+' is not an integer"),
        (
            "total_sv 3",
            "total_sv 2147483647",
            "line 10: nr_sv: the numbers of support vectors do not add up to 2147483647",
        ),
        ("total_sv 3", "total_sv -3", "line 7: total_sv: a value is not in"),
        ("rho 0.1 0.2 0.3", "rho 0.1 0.2", "line 8: rho: 2 values, expected 3"),
        ("label 1 2 3", "label 1 2 2", "line 9: label: expected 2 to"),
        ("label 1 2 3", "label a b c", "line 9: label: 'a' is not an integer"),
        ("nr_sv 1 1 1", "nr_sv 1 1", "line 10: nr_sv: 2 values, expected 3"),
        ("nr_sv 1 1 1", "nr_sv -1 3 1", "line 10: nr_sv: a value is not in"),
        ("nr_sv 1 1 1", "nr_sv 1 1 1\ngamma 1", "line 11: 'gamma' is not expected here"),
        ("SV\n", "SV!\n", "line 11: 'SV!' is not expected here"),
        ("SV\n", "\n", "line 11: '' is not expected here"),
        ("-0.25 -0.5 2:2\n", "", "it ends after 2 of 3 support vectors"),
        ("-0.25 -0.5 2:2\n", "-0.25 -0.5 2:2\n1 1 1:1\n", "line 15: this is not a line for a support vector"),
        ("-0.25 -0.5 2:2", "-0.25", "line 14: this is not a line for a support vector"),
        ("-0.25 -0.5 2:2", "-0.25 2:2", "line 14: '2:2' is not a finite number"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2", "line 14: a value is not of the form"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:2:2", "line 14: a value is not of the form"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:inf", "line 14: 'inf' is not a finite number"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 0:2", "line 14: feature numbers are not increasing"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:2 1:1", "line 14: feature numbers are not increasing"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 9999999999:2", "line 14: feature numbers are not increasing"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 \xff:2", "line 14: '.*' is not an integer"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path, old, new, message):
    assert TEXT.count(old) == 1
    (tmp_path / "model").write_text(TEXT.replace(old, new), encoding="latin-1")
    with pytest.raises(ValueError, match=rf"model is not a valid LIBSVM model: {message}"):
        KernelModel.from_libsvm(tmp_path / "model")


def test_a_wide_file_takes_little_memory(tmp_path):
    """One value far to the right is no reason for a row of 16 GB."""
    (tmp_path / "model").write_text(TEXT.replace("2:2", "2147483647:2"))
    model = KernelModel.from_libsvm(tmp_path / "model")
    assert model.width == 2147483647
    assert sp.issparse(model.support_vectors)


def test_other_files(tmp_path):
    for content in (b"", b"SV\n", b"\x00" * 99, b"svm_type c_svc\n", TEXT.encode()[:60]):
        (tmp_path / "model").write_bytes(content)
        with pytest.raises(ValueError, match="is not a valid LIBSVM model"):
            KernelModel.from_libsvm(tmp_path / "model")
    with pytest.raises(FileNotFoundError):
        KernelModel.from_libsvm(tmp_path / "nowhere")


def test_scikit_learns_libsvm_agrees(tmp_path, rng):
    """A path round: trained there, written here, evaluated by the text."""
    X = rng.normal(size=(150, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    svc = SVC(decision_function_shape="ovo").fit(X, y)
    KernelModel.from_sklearn(svc).to_libsvm(tmp_path / "model")
    assert np.abs(values_of_text(tmp_path / "model", X)[0] - svc.decision_function(X)).max() < 1e-9
