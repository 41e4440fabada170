"""Models as files: the same decision values, and a clear error for everything else."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import dasksvm
from dasksvm import Dataset, LaSVC
from tests.helpers import blobs


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


def test_other_files_are_no_models(tmp_path):
    model, _ = fitted(tmp_path, "dense")
    path = tmp_path / "model"
    model.model_.save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays["header"]))

    def written(**changes):
        with path.open("wb") as file:
            np.savez(file, **(arrays | changes))

    cases = [
        ({"header": np.array(json.dumps(header | {"version": 7}))}, "version 7"),
        ({"header": np.array(json.dumps({"format": "other"}))}, "another format"),
        ({"header": np.array(json.dumps(header | {"kernel": header["kernel"] | {"name": "exec"}}))}, "kernel 'exec'"),
        ({"coefficients": arrays["coefficients"][:, :-1]}, "do not fit"),
        ({"classes": np.array([{"a": 1}, None], object)}, "no model"),
        ({"intercepts": np.array(["x"])}, "types"),
    ]
    for changes, message in cases:
        written(**changes)
        with pytest.raises(ValueError, match=message):
            dasksvm.load(path)
    for content in (b"", b"PK\x03\x04 torn", b"no zip at all"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no model"):
            dasksvm.load(path)
    with pytest.raises(FileNotFoundError):
        dasksvm.load(tmp_path / "nowhere")
