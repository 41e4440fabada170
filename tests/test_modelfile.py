"""Models as files: the same decision values, and a clear error for everything else."""

import json
import zlib

import numpy as np
import pytest
import scipy.sparse as sp

import dasksvm
from dasksvm import Dataset, KernelModel, LaSVC
from dasksvm.data import array_file
from dasksvm.model.native import KIND, VERSION
from dasksvm.solver.kernels.kernel import Kernel
from tests.helpers import blobs
from tests.models import some_model


def fitted(tmp_path, kind):
    X, y = blobs(200)
    labels = np.where(y > 0, "yes", "no")
    if kind == "sparse":
        return LaSVC(random_state=0).fit(sp.csr_matrix(X), labels), sp.csr_matrix(X)
    if kind == "scaled":
        data = Dataset.create(tmp_path / "scaled", X, labels, scale="standard", random_state=0)
        return LaSVC(random_state=0).fit(data), X
    if kind == "object":
        labels = labels.astype(object)
    return LaSVC(random_state=0, kernel="poly", coef0=1.0).fit(X, labels), X


@pytest.mark.parametrize("kind", ["dense", "sparse", "scaled", "object"])
def test_a_loaded_model_decides_as_the_saved_one(tmp_path, kind):
    model, X = fitted(tmp_path, kind)
    path = tmp_path / "model"
    model.model_.save(path)
    model.model_.save(path)  # replaces
    again = dasksvm.load(path)
    assert np.array_equal(again.decision_function(X), model.model_.decision_function(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("model")) == ["model"]


def test_100_random_models_come_back_bit_by_bit(tmp_path):
    for seed in range(100):
        model, X = some_model(seed)
        model.save(tmp_path / "model")
        again = dasksvm.load(tmp_path / "model")
        assert again.kernel == model.kernel
        assert again.support_vectors.dtype == model.support_vectors.dtype
        assert again.classes.tolist() == model.classes.tolist()
        assert np.array_equal(again.decision_function(X), model.decision_function(X)), seed
        assert np.array_equal(again.predict(X), model.predict(X)), seed


def test_sparse_rows_that_are_not_in_order_are_put_in_order(tmp_path):
    twisted = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    model = KernelModel(Kernel("linear"), twisted, np.ones((1, 1)), np.zeros(1), np.array([0, 1]))
    model.save(tmp_path / "model")
    assert dasksvm.load(tmp_path / "model").support_vectors.toarray().tolist() == [[2.0, 0.0, 4.0]]
    assert model.support_vectors is twisted
    assert twisted.nnz == 3


def test_what_is_no_model_is_not_written(tmp_path):
    for coefficients, classes in [
        (np.full((1, 2), np.nan), [0, 1]),
        (np.ones((1, 2)), [1, 0]),
        (np.ones((2, 2)), [0, 1]),
    ]:
        model = KernelModel(Kernel("rbf"), np.eye(2), coefficients, np.zeros(1), np.array(classes))
        with pytest.raises(ValueError, match="cannot be written"):
            model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def forged(path, about=(), arrays=(), *, without=None):
    """Write a model file that says something else, with checksums that are right."""
    model, _ = some_model(0, sparse=True, scaled=True, classes=2)
    model.save(path)
    told, held = array_file.read(path, KIND, (VERSION,))
    told, held = told | dict(about), held | dict(arrays)
    told.pop(without, None)
    held.pop(without, None)
    array_file.write(path, KIND, VERSION, told, held)
    return held


RBF = {"name": "rbf", "gamma": 1.0, "coef0": 0.0, "degree": 3}
ABOUT = [
    ({"kernel": RBF | {"name": "exec"}}, "kernel 'exec'"),
    ({"kernel": RBF | {"name": ["rbf"]}}, r"kernel \['rbf'\]"),
    ({"kernel": RBF | {"gamma": float("nan")}}, "parameter nan"),
    ({"kernel": RBF | {"coef0": "x"}}, "parameter 'x'"),
    ({"kernel": RBF | {"gamma": -1.0}}, "gamma=-1"),
    ({"kernel": RBF | {"degree": 0}}, "degree=0"),
    ({"kernel": RBF | {"degree": 1 << 60}}, "degree=1152921504606846976"),
    ({"kernel": RBF | {"gamma": 10**400}}, "too large"),
    ({"kernel": [1, 2]}, "indices"),
    ({"width": 1 << 60}, f"invalid number of features: {1 << 60}"),
    ({"width": True}, "invalid number of features: True"),
    ({"width": 1}, "outside of 0 to 0"),
    ({"width": 1000}, "does not match its features"),
    ({"sparse": False}, "'support_vectors' is missing"),
    ({"sparse": 1}, "sparse is 1, not true or false"),
    ({"pairwise": True}, "marked as pairwise, but has only two classes"),
]
# Arrays instead of those of the file; numbers fill arrays of their shape.
ARRAYS = [
    ({"indices": 1 << 30}, "feature numbers outside"),
    ({"indices": -1}, "feature numbers outside"),
    ({"indices": 0}, "feature numbers that are not in order"),
    ({"indices": np.zeros(2, np.int32)}, "do not have the expected number of values"),
    ({"indices": np.zeros((1, 2), np.int32)}, "wrong type or shape"),
    ({"indptr": np.array([0, 5, 2], np.int64)}, "row pointers of its sparse rows are not in order"),
    ({"indptr": np.array([1, 2], np.int64)}, "row pointers of its sparse rows are not in order"),
    ({"indptr": np.zeros(0, np.int64)}, "row pointers of its sparse rows are not in order"),
    ({"indptr": np.array([0, 1 << 60], np.int64)}, "do not have the expected number of values"),
    ({"indptr": np.array([0.0, 1.0])}, "wrong type or shape"),
    ({"data": np.array(["a"])}, "data has the type"),
    ({"data": np.array([np.inf])}, "data has values"),
    ({"coefficients": np.ones((1, 2), np.float32)}, "coefficients or intercepts are not float64"),
    ({"coefficients": np.nan}, "not finite"),
    ({"coefficients": np.ones((1, 1000))}, "shapes of its arrays do not match"),
    ({"intercepts": np.zeros(2)}, "number of decision functions does not match"),
    ({"intercepts": np.zeros(0)}, "number of decision functions does not match"),
    ({"classes": np.array(["a"])}, "fewer than two classes"),
    ({"classes": np.array([["a"], ["b"]])}, "fewer than two classes"),
    ({"classes": np.array(["b", "a"])}, "not sorted and unique"),
    ({"classes": np.array([np.nan, np.nan])}, "not sorted and unique"),
    ({"factor": np.ones(3)}, "scaling does not match"),
    ({"offset": np.inf}, "scaling does not match"),
]


@pytest.mark.parametrize(("changes", "message"), ABOUT)
def test_forged_descriptions_are_errors(tmp_path, changes, message):
    forged(tmp_path / "model", about=changes)
    with pytest.raises(ValueError, match=rf"model is not a valid dasksvm model: .*{message}"):
        dasksvm.load(tmp_path / "model")


@pytest.mark.parametrize(("changes", "message"), ARRAYS)
def test_forged_arrays_are_errors(tmp_path, changes, message):
    held = forged(tmp_path / "model")
    arrays = {}
    for name, value in changes.items():
        arrays[name] = value if isinstance(value, np.ndarray) else np.full(held[name].shape, value)
    forged(tmp_path / "model", arrays=arrays)
    with pytest.raises(ValueError, match=rf"model is not a valid dasksvm model: .*{message}"):
        dasksvm.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["kernel", "width", "pairwise", "classes", "indptr", "factor"])
def test_what_is_missing_is_named(tmp_path, name):
    forged(tmp_path / "model", without=name)
    with pytest.raises(ValueError, match=f"'{name}' is missing"):
        dasksvm.load(tmp_path / "model")


def test_other_files_are_no_models(tmp_path):
    path = tmp_path / "model"
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps({"format": "dasksvm-model", "version": 2})))
    with pytest.raises(
        ValueError, match=r"model is not a valid dasksvm model: it does not begin with the mark of a dasksvm file$"
    ):
        dasksvm.load(path)
    for kind, version, message in [("snapshot", VERSION, "it is a snapshot"), (KIND, 7, "it has version 7")]:
        array_file.write(path, kind, version, {}, {})
        with pytest.raises(ValueError, match=message):
            dasksvm.load(path)
    for content in (b"", b"no model at all", zlib.compress(b"x" * 1000)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a valid"):
            dasksvm.load(path)
    with pytest.raises(FileNotFoundError):
        dasksvm.load(tmp_path / "nowhere")


def test_rows_of_another_width_are_refused(tmp_path):
    """Sparse kernels would read beyond the end of what they are given."""
    model, X = some_model(0, sparse=True)
    for rows in (X[:, :-1], sp.csr_matrix(X)[:, :-1], np.zeros(X.shape[1])):
        with pytest.raises(ValueError, match="is expecting"):
            model.decision_function(rows)
