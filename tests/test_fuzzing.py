"""Files of others: whatever is in them, nothing crashes, nothing is run, and an error says where.

The mutations are made and tried in `tests/fuzzing.py`, in a process of its own: a crash of the interpreter is seen here.
"""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dasksvm import Dataset, LaSVC, load
from dasksvm.data import stored
from tests.helpers import blobs


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """What cannot be read is read again at once: no disk comes back here."""
    monkeypatch.setattr(stored, "RETRIES", (0.001, 0.001))


def fuzz(folder, seed, limit, *wanted):
    command = [sys.executable, "-m", "tests.fuzzing", str(folder), str(seed), *wanted]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=limit)
    last = done.stdout.strip().splitlines()[-1:]
    assert done.returncode == 0, f"it ended with {done.returncode} after {last}: {done.stderr[-3000:]}"
    return json.loads(last[0])


def test_damaged_and_forged_files(tmp_path):
    told = fuzz(tmp_path, 0, 240, "model:150", "libsvm:150", "data:60")
    # Some mutations change nothing that could be refused.
    assert {f"{kind} {outcome}" for kind in ("model", "libsvm", "data") for outcome in ("read", "ValueError")} <= set(
        told
    )
    assert told["data OSError"] > 3


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_many_damaged_and_forged_files(tmp_path):
    fuzz(tmp_path, 10_000, 1400, "model:3000", "libsvm:3000", "data:1000")


class Planted:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def made(path, sparse=False):
    X, y = blobs(60)
    return Dataset.create(path, sp.csr_matrix(X) if sparse else X, y, chunk_rows=20, shuffle=False)


def rewritten(path, name, values, **options):
    """Put an array in the place of another, as Zarr writes it."""
    zarr.open_group(str(path), mode="a").create_array(name, data=values, overwrite=True, **options)


def everything(path):
    data = Dataset.open(path)
    data.rows(np.arange(len(data)))
    data.labels(np.arange(len(data)))
    data.weights(np.arange(len(data)))
    data.source_rows(np.arange(len(data)))


def test_a_group_of_the_old_version_that_unpickles_is_not_opened(tmp_path):
    made(tmp_path / "new")
    about = dict(zarr.open_group(str(tmp_path / "new"), mode="r").attrs)
    old = zarr.open_group(str(tmp_path / "old"), mode="w", zarr_format=2)
    old.attrs.update(about)
    array = old.create_array("X", shape=(60, 5), chunks=(60, 5), dtype="f8", compressors=None)
    array.attrs["plain"] = True
    meta = tmp_path / "old" / "X" / ".zarray"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"dtype": "|O", "filters": [{"id": "pickle"}]}))
    (tmp_path / "old" / "X" / "0.0").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    with pytest.raises(ValueError, match="no Zarr group"):
        Dataset.open(tmp_path / "old")
    with pytest.raises(ValueError, match="pickle"):
        Dataset.create(tmp_path / "from", tmp_path / "old", "label", format="anndata")
    assert not (tmp_path / "ran").exists()


def test_codecs_of_anndata_are_those_that_are_known(tmp_path):
    store = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=2)
    store.create_array("X", data=np.ones((4, 2)), filters=[numcodecs.BitRound(10)])
    store.create_group("obs").create_array("label", data=np.arange(4))
    with pytest.raises(ValueError, match="an array has the codec 'bitround'"):
        Dataset.create(tmp_path / "d", tmp_path / "a.zarr", "label")


def test_a_model_file_that_is_a_pickle_is_not_opened(tmp_path):
    (tmp_path / "model").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    with pytest.raises(ValueError, match="is not a valid"):
        load(tmp_path / "model")
    np.savez(tmp_path / "arrays.npz", header=np.array([Planted(tmp_path / "ran")], object))
    with pytest.raises(ValueError, match="is not a valid"):
        load(tmp_path / "arrays.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [60, 1 << 40]}, "features"),
        ({"shape": [1 << 60, 5]}, "in chunks of"),
        ({"shape": [60.0, 5]}, "shape is 60.0"),
        ({"shape": [60]}, "unpack"),
        ({"chunk_rows": 1 << 40}, "chunks of the shape"),
        ({"chunk_rows": 0}, "chunk_rows is 0"),
        ({"column_rows": 1 << 40}, "in chunks of"),
        ({"nonzeros": -1}, "nonzeros is -1"),
        ({"sparse": True}, "X/indptr does not have the shape"),
        ({"sparse": 0}, "sparse is 0"),
        ({"shuffled": True}, "source does not have the shape"),
        ({"weighted": True}, "weight does not have the shape"),
        ({"scaled": True}, r"features does not have the shape \(6, 5\)"),
        ({"names": ["a"]}, "feature names are not one text"),
        ({"names": [1, 2, 3, 4, 5]}, "feature names are not one text"),
        ({"origin": 3}, "origin is 3"),
        ({"classes": [1, -1]}, "not in order"),
        ({"classes": [-1, 1 << 70]}, "too large|out of bounds"),
        ({"classes": [-1, "a"]}, "not values of the type"),
        ({"class_type": "|O"}, r"of the type '\|O'"),
        ({"class_type": "i4,i4"}, "of the type 'i4,i4'"),
        ({"class_type": "<U3"}, "not values of the type"),
        ({"classes": ["a", "bb"], "class_type": "<U1"}, "longer"),
        ({"class_counts": [60]}, "do not fit 2 classes and 60 rows"),
        ({"class_counts": [60, 1]}, "do not fit 2 classes and 60 rows"),
        ({"class_counts": [-1, 61]}, "class_counts is -1"),
    ],
)
def test_what_a_data_set_says_of_itself_is_checked(tmp_path, change, message):
    made(tmp_path / "d")
    group = zarr.open_group(str(tmp_path / "d"), mode="a")
    group.attrs["dasksvm"] = dict(group.attrs["dasksvm"]) | change
    with pytest.raises(ValueError, match=rf"d is damaged: .*({message})"):
        Dataset.open(tmp_path / "d")


@pytest.mark.parametrize("name", ["sparse", "classes", "class_type", "origin", "shape"])
def test_what_it_does_not_say_is_named(tmp_path, name):
    made(tmp_path / "d")
    group = zarr.open_group(str(tmp_path / "d"), mode="a")
    group.attrs["dasksvm"] = {key: value for key, value in group.attrs["dasksvm"].items() if key != name}
    with pytest.raises(ValueError, match=f"d is damaged: it has no '{name}'"):
        Dataset.open(tmp_path / "d")


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore:.*not part in the Zarr format 3 specification")
@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("X", np.full((60, 5), "text"), "array X has the"),
        ("X", np.zeros((60, 5), complex), "X has the type complex128"),
        ("X", np.zeros((60, 6)), "X does not have the shape"),
        ("y", np.zeros(60, np.int64), "y has the type int64"),
        ("y", np.zeros(61, np.uint8), "y does not have the shape"),
        ("features", np.zeros((4, 5), np.float32), "features has the type float32"),
        ("features", np.zeros((4, 6)), "features does not have the shape"),
        ("features", np.full((4, 5), np.nan), "values that are not a number"),
        ("y", np.full(60, 2, np.uint8), "y has the class number 2"),
        ("X", np.full((60, 5), np.inf), r"chunk 0 of X \(rows 0 to 19\) cannot be read: it has values that are not"),
    ],
)
def test_arrays_that_are_others(tmp_path, name, values, message):
    made(tmp_path / "d")
    chunks = (20, *values.shape[1:]) if name == "X" else values.shape
    rewritten(tmp_path / "d", name, values, chunks=chunks)
    with pytest.raises((ValueError, OSError), match=rf"/d.*{message}"):
        everything(tmp_path / "d")


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("indptr", 3, 1 << 40, "are not in order"),
        ("indptr", 3, -1, "are not in order"),
        ("indptr", 20, 1 << 40, "not have the expected number of values"),
        ("indptr", 0, -(1 << 40), "not have the expected number of values"),
        ("indices", 7, 5, "feature numbers outside of 0 to 4"),
        ("indices", 7, (1 << 31) - 1, "feature numbers outside of 0 to 4"),
        ("indices", 7, -1, "feature numbers outside of 0 to 4"),
        ("indices", 1, 0, "not in order"),
        ("data", 7, np.nan, "not finite"),
    ],
)
def test_sparse_rows_that_point_elsewhere(tmp_path, name, at, value, message):
    made(tmp_path / "d", sparse=True)
    zarr.open_group(str(tmp_path / "d"), mode="a")[f"X/{name}"][at] = value
    data = Dataset.open(tmp_path / "d")
    with pytest.raises(OSError, match=rf"/d: chunk 0 of X \(rows 0 to 19\) cannot be read: .*{message}"):
        data.rows(np.arange(20))
    with pytest.raises(OSError, match=message):
        LaSVC(random_state=0).fit(data)
    with pytest.raises(OSError, match=message):
        data.as_dask()[0].compute()


def test_weights_that_are_none(tmp_path):
    X, y = blobs(60)
    Dataset.create(tmp_path / "d", X, y, np.ones(60), shuffle=False)
    for value in (-1.0, np.nan):
        zarr.open_group(str(tmp_path / "d"), mode="a")["weight"][3] = value
        with pytest.raises((ValueError, OSError), match=r"/d.*(value -1|not finite)"):
            everything(tmp_path / "d")


def test_codecs_that_are_not_known(tmp_path):
    made(tmp_path / "d")
    values = zarr.open_group(str(tmp_path / "d"), mode="r")["X"][:]
    rewritten(tmp_path / "d", "X", values, chunks=(20, 5), compressors=zarr.codecs.BloscCodec())
    with pytest.raises(ValueError, match=r"d is damaged: the array X has the codecs \['bytes', 'blosc'\]"):
        Dataset.open(tmp_path / "d")


def test_a_flipped_bit_in_a_chunk_is_seen(tmp_path):
    made(tmp_path / "d")
    file = tmp_path / "d" / "X" / "c" / "1" / "0"
    content = file.read_bytes()
    for at in range(0, len(content), 97):
        file.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(OSError, match=r"chunk 1 of X \(rows 20 to 39\) cannot be read"):
            Dataset.open(tmp_path / "d").part(1)


@pytest.mark.parametrize(("sparse", "dtype"), [(False, "f4"), (True, "f4"), (False, "u1")])
def test_a_chunk_that_is_missing_is_seen(tmp_path, sparse, dtype):
    X, y = blobs(60)
    X[:, 0] = 0.0
    X[20:40] = 0.0
    X = np.abs(X).astype(dtype)
    labels = np.where(np.arange(60) < 30, 0, y + 2)
    rows = sp.csr_matrix(X) if sparse else X
    data = Dataset.create(tmp_path / "d", rows, labels, np.ones(60), chunk_rows=20, random_state=0)
    before = data.rows(np.arange(60))
    files = [file for file in (tmp_path / "d").rglob("*") if file.is_file() and file.name != "zarr.json"]
    assert len(files) == 7
    for file in files:
        content = file.read_bytes()
        file.unlink()
        with pytest.raises((ValueError, OSError), match=r"/d.*(damaged|cannot be read)"):
            everything(tmp_path / "d")
        file.write_bytes(content)
    everything(tmp_path / "d")
    assert (Dataset.open(tmp_path / "d").rows(np.arange(60)) != before).sum() == 0


def test_archives_and_anndata_that_point_elsewhere(tmp_path):
    X, y = blobs(60)
    forged = sp.csr_matrix(X)
    indptr = forged.indptr.copy()
    indptr[3] = 1 << 30
    np.savez(
        tmp_path / "a.npz", format="csr", shape=X.shape, data=forged.data, indices=forged.indices, indptr=indptr, y=y
    )
    store = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    matrix = store.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [60, 5]})
    for name, values in (("data", forged.data), ("indices", forged.indices), ("indptr", indptr)):
        matrix.create_array(name, data=values)
    store.create_group("obs").create_array("label", data=y)
    for name, label in (("a.npz", "y"), ("a.zarr", "label")):
        with pytest.raises(ValueError, match=r"indptr|index pointer"):
            Dataset.create(tmp_path / "d", tmp_path / name, label)
