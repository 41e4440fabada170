"""Models as LIBSVM's text: what LIBSVM makes of them, what is made of its own, and an error for everything else.

`svm-predict` tells labels only. So decision values are compared with those of the text as LIBSVM's documentation explains
it, computed here; and with LIBSVM itself by a shift of the threshold in the file: the label changes at the decision value.
"""

import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from dasksvm import KernelModel, LaSVC
from dasksvm.data.statistics import Scaling
from dasksvm.libsvmfile import without_scaling
from dasksvm.solver.kernels import Kernel
from tests.helpers import blobs, kernel_matrix
from tests.models import some_model

needs_libsvm = pytest.mark.skipif(shutil.which("svm-predict") is None, reason="LIBSVM's programs are not installed")
SHORT = {"linear": "linear", "polynomial": "poly", "rbf": "rbf", "sigmoid": "sigmoid"}


def values_of_text(path, X):
    """Evaluate a file: the value of each pair of classes in the order of the file, and the labels in that order."""
    head, body = path.read_text().split("SV\n")
    said = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
    labels, counts = [int(label) for label in said["label"]], [int(count) for count in said["nr_sv"]]
    rows = [line.split() for line in body.splitlines()]
    coefficients = np.array([row[: len(labels) - 1] for row in rows], float).reshape(len(rows), -1).T
    vectors = np.zeros((len(rows), X.shape[1]))
    for vector, row in zip(vectors, rows, strict=True):
        for pair in row[len(labels) - 1 :]:
            vector[int(pair.split(":")[0]) - 1] = float(pair.split(":")[1])
    gamma, coef0, degree = (float(said.get(name, ["1"])[0]) for name in ("gamma", "coef0", "degree"))
    K = kernel_matrix(SHORT[said["kernel_type"][0]], X, vectors, gamma, coef0, int(degree))
    of = np.repeat(np.arange(len(labels)), counts)
    values, rho = [], iter(map(float, said["rho"]))
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            part = K[:, of == i] @ coefficients[j - 1, of == i] + K[:, of == j] @ coefficients[i, of == j]
            values.append(part - next(rho))
    return np.array(values).T, labels


def rows_of(path, X, y):
    lines = []
    for label, row in zip(y, X, strict=True):
        lines.append(f"{label} " + " ".join(f"{at}:{value:.17g}" for at, value in enumerate(row, 1) if value))
    path.write_text("\n".join(lines) + "\n")
    return path


def libsvm(tmp_path, path, X):
    """Predict with Debian's program."""
    rows = rows_of(tmp_path / "rows", X, np.zeros(len(X), int))
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
        if shutil.which("svm-predict"):
            theirs, tied = libsvm(tmp_path, path, X), undecided(model, X)
            assert np.array_equal(theirs[~tied], model.predict(X)[~tied]), seed
            ties += tied.sum()
    assert ties < 1000
    assert [file.name for file in tmp_path.glob("model*")] == ["model"]


@needs_libsvm
@pytest.mark.parametrize("seed", range(8))
def test_svm_predict_has_the_same_decision_values(tmp_path, seed):
    model, X = some_model(seed, classes=2, text=False, scaled=False)
    assert_libsvm_agrees(tmp_path, model, X[:3], tmp_path / "model", model.to_libsvm)


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


@needs_libsvm
@pytest.mark.parametrize("kernel", range(4))
@pytest.mark.parametrize("classes", [2, 4])
def test_models_of_svm_train(tmp_path, rng, kernel, classes):
    X = rng.normal(size=(120, 4)) * (rng.random((120, 4)) < 0.8)
    # Labels in an order of their own: the file has them as they come.
    y = np.array([3, -1, 7, 2])[np.minimum((np.abs(X[:, 0]) * 2).astype(int), classes - 1)]
    rows = rows_of(tmp_path / "rows", X, y)
    options = ["-t", kernel, "-g", 0.3, "-r", 0.5, "-d", 2, "-c", 2, "-q"]
    run("svm-train", *options, rows, tmp_path / "model")
    model = KernelModel.from_libsvm(tmp_path / "model")
    assert model.classes.tolist() == sorted(set(y.tolist()))
    theirs, tied = libsvm(tmp_path, tmp_path / "model", X), undecided(model, X)
    assert tied.mean() < 0.2
    assert np.array_equal(model.predict(X)[~tied], theirs[~tied])
    values, labels = values_of_text(tmp_path / "model", X)
    ours, at = model.decision_function(X), 0
    first, second = np.triu_indices(classes, 1)
    pairs = list(zip(model.classes[first], model.classes[second], strict=True))
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            if classes == 2:
                mine = ours[:, 0] * (1 if one > other else -1)
            else:
                mine = ours[:, pairs.index((one, other))] if one < other else -ours[:, pairs.index((other, one))]
            assert np.abs(mine - values[:, at]).max() < 1e-9
            at += 1
    if classes == 2:
        assert_libsvm_agrees(tmp_path, model, X[:2], tmp_path / "model")


@needs_libsvm
def test_probabilities_are_left_out(tmp_path):
    X, y = blobs(60)
    rows = rows_of(tmp_path / "rows", X, y)
    run("svm-train", "-b", 1, "-q", rows, tmp_path / "model")
    assert "probA" in (tmp_path / "model").read_text()
    model = KernelModel.from_libsvm(tmp_path / "model")
    assert np.array_equal(model.predict(X), libsvm(tmp_path, tmp_path / "model", X))


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
    with pytest.raises(ValueError, match="3 features, which are not 2"):
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


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
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
        with pytest.raises(ValueError, match=f"cannot be made part of kernel {kernel}"):
            without_scaling(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": True, "classes": 2}, "labels are integers"),
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
    with pytest.raises(ValueError, match="labels are integers of 32 bits"):
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
        ("c_svc", "one_class", "line 1: svm_type: 'one_class' is no classifier"),
        ("c_svc", "epsilon_svr", "line 1: svm_type: 'epsilon_svr' is no classifier"),
        ("polynomial", "precomputed", "line 2: kernel_type: 'precomputed' is none of"),
        ("degree 3", "degree 0", "line 3: degree: a value is not in 1 to"),
        ("degree 3", "degree 3.5", "line 3: degree: '3.5' is no integer"),
        ("degree 3", "degree 99999999999", "line 3: degree: a value is not in"),
        ("gamma 0.5", "gamma nan", "line 4: gamma: 'nan' is no finite number"),
        ("gamma 0.5", "gamma -1", "line 4: gamma: it is negative"),
        ("gamma 0.5", "gamma 1_0", "line 4: gamma: '1_0' is no finite number"),
        ("gamma 0.5\n", "", "its header has no gamma"),
        ("coef0 0", "coef0", "line 5: coef0: 0 values, where 1 should be"),
        ("nr_class 3", "nr_class 2", "line 9: label: these are not the labels"),
        ("nr_class 3", f"nr_class {'9' * 5000}", "line 6: nr_class: '9+' is no integer"),
        ("total_sv 3", "total_sv 2147483647", "line 10: nr_sv: the support vectors of the classes are not 2147483647"),
        ("total_sv 3", "total_sv -3", "line 7: total_sv: a value is not in"),
        ("rho 0.1 0.2 0.3", "rho 0.1 0.2", "line 8: rho: 2 values, where 3 should be"),
        ("label 1 2 3", "label 1 2 2", "line 9: label: these are not the labels"),
        ("label 1 2 3", "label a b c", "line 9: label: 'a' is no integer"),
        ("nr_sv 1 1 1", "nr_sv 1 1", "line 10: nr_sv: 2 values, where 3"),
        ("nr_sv 1 1 1", "nr_sv -1 3 1", "line 10: nr_sv: a value is not in"),
        ("nr_sv 1 1 1", "nr_sv 1 1 1\ngamma 1", "line 11: 'gamma' is not expected here"),
        ("SV\n", "SV!\n", "line 11: 'SV!' is not expected here"),
        ("SV\n", "\n", "line 11: '' is not expected here"),
        ("-0.25 -0.5 2:2\n", "", "it ends after 2 of 3 support vectors"),
        ("-0.25 -0.5 2:2\n", "-0.25 -0.5 2:2\n1 1 1:1\n", "line 15: this is not the line of a support vector"),
        ("-0.25 -0.5 2:2", "-0.25", "line 14: this is not the line of a support vector"),
        ("-0.25 -0.5 2:2", "-0.25 2:2", "line 14: '2:2' is no finite number"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2", "line 14: a value is not of the form"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:2:2", "line 14: a value is not of the form"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:inf", "line 14: 'inf' is no finite number"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 0:2", "line 14: features are not in order"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 2:2 1:1", "line 14: features are not in order"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 9999999999:2", "line 14: features are not in order"),
        ("-0.25 -0.5 2:2", "-0.25 -0.5 \xff:2", "line 14: '.*' is no integer"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path, old, new, message):
    assert TEXT.count(old) == 1
    (tmp_path / "model").write_text(TEXT.replace(old, new), encoding="latin-1")
    with pytest.raises(ValueError, match=rf"model is no model of LIBSVM that can be read: {message}"):
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
        with pytest.raises(ValueError, match="is no model of LIBSVM"):
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
