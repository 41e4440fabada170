"""Data sets on Zarr: what is written is what is read, complete or absent."""

import multiprocessing
import os
import pickle
import signal
import time

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dasksvm import Dataset, LaSVC
from dasksvm.data.ingest import writer
from dasksvm.data.ingest.readers import reader
from dasksvm.data.statistics import FeatureStatistics
from tests.clusters import digest


@pytest.fixture
def rows(rng):
    X = rng.integers(0, 255, size=(503, 7)).astype(np.uint8)
    y = np.where(rng.random(503) < 0.3, "rare", "common")
    return X, y


def test_rows_labels_and_sources_are_what_was_given(tmp_path, rows, rng):
    X, y = rows
    weight = rng.random(503)
    data = Dataset.create(tmp_path / "d", X, y, weight, chunk_rows=50, random_state=3)
    assert data.shape == (503, 7)
    assert data.chunks() == (50,) * 10 + (3,)
    assert data.shuffled
    assert data.weighted
    assert data.classes.tolist() == ["common", "rare"]
    assert data.class_counts.tolist() == [np.sum(y == "common"), np.sum(y == "rare")]
    ids = rng.permutation(503)[:200]
    source = data.source_rows(ids)
    assert data.rows(ids).dtype == np.uint8
    assert np.array_equal(data.rows(ids), X[source])
    assert np.array_equal(data.labels(ids), y[source])
    assert np.array_equal(data.weights(ids), weight[source])
    everything = data.source_rows(np.arange(503))
    assert np.array_equal(np.sort(everything), np.arange(503))
    assert not np.array_equal(everything, np.arange(503))


def test_unshuffled_rows_stay_in_order(tmp_path, rows):
    X, y = rows
    data = Dataset.create(tmp_path / "d", X, y, shuffle=False)
    ids = np.arange(503)
    assert np.array_equal(data.rows(ids), X)
    assert np.array_equal(data.source_rows(ids), ids)
    assert np.array_equal(data.weights(ids), np.ones(503))
    assert data.rows(ids[:0]).shape == (0, 7)


def test_dask_arrays_and_numpy_arrays_are_written_alike(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(writer, "BUCKET_BYTES", 1000)
    monkeypatch.setattr(reader, "PIECE_BYTES", 700)
    X, y = rows
    one = Dataset.create(tmp_path / "numpy", X, y, chunk_rows=60, random_state=5)
    lazy = da.concatenate([da.from_array(X, chunks=(100, 3)), da.from_array(X[:0], chunks=(1, 7))])
    two = Dataset.create(tmp_path / "dask", lazy, da.from_array(y, chunks=70), chunk_rows=60, random_state=5)
    ids = np.arange(503)
    for name in ("rows", "labels", "source_rows"):
        assert np.array_equal(getattr(one, name)(ids), getattr(two, name)(ids))
    assert np.allclose(one.variance, two.variance)
    X_again, y_again = one.as_dask()
    assert np.array_equal(X_again.compute(), one.rows(ids))
    assert np.array_equal(y_again.compute(), one.labels(ids))
    assert np.array_equal(da.from_zarr(str(tmp_path / "numpy"), component="X").compute(), one.rows(ids))


def test_shuffle_is_uniform(tmp_path, monkeypatch):
    """Every row is as likely in any tenth of the data, also when it is dealt to buckets."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 600)
    X = np.zeros((600, 1), np.int64)
    counts = np.zeros((10, 10))
    for seed in range(10):
        data = Dataset.create(tmp_path / str(seed), X, np.arange(600) % 2, random_state=seed)
        source = data.source_rows(np.arange(600))
        np.add.at(counts, (source // 60, np.arange(600) // 60), 1)
    expected = 60.0
    assert np.sum((counts - expected) ** 2 / expected) < 130  # χ² with 81 degrees of freedom: p ≈ 0.0005


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.floats(-1e6, 1e6))
@settings(max_examples=40)
def test_statistics_by_blocks_are_those_of_all_rows(sizes, offset):
    rng = np.random.default_rng(len(sizes))
    blocks = [rng.normal(size=(size, 3)) + offset for size in sizes]
    statistics = FeatureStatistics.empty(3)
    for block in blocks:
        statistics.add(block)
    X = np.concatenate(blocks)
    assert statistics.count == len(X)
    if len(X):
        assert np.allclose(statistics.mean, X.mean(axis=0))
        assert np.allclose(statistics.variance, X.var(axis=0), atol=1e-9)
        assert np.array_equal(statistics.minimum, X.min(axis=0))
        assert np.array_equal(statistics.maximum, X.max(axis=0))


@pytest.mark.parametrize("scale", ["minmax", "standard"])
def test_scaling_is_a_map_of_the_features(tmp_path, rows, scale):
    X, y = rows
    X = X.copy()
    X[:, 2] = 9  # a constant
    data = Dataset.create(tmp_path / "d", X, y, scale=scale)
    scaled = (X - data.scaling.offset) * data.scaling.factor
    if scale == "minmax":
        assert scaled.min() == 0
        assert scaled.max() == pytest.approx(1.0)
    else:
        assert np.allclose(scaled.mean(axis=0), 0)
        assert np.allclose(np.delete(scaled.var(axis=0), 2), 1)
    assert np.all(scaled[:, 2] == 0)
    assert Dataset.create(tmp_path / "raw", X, y).scaling is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((3, 2))}, "X has 3 rows, but y has 4"),
        ({"X": np.zeros(4)}, "2 dimensions"),
        ({"X": np.zeros((0, 2)), "y": []}, "at least one of each"),
        ({"X": np.array([["a"]] * 4)}, "numeric"),
        ({"X": [[0.0, 1], [2, 3], [4, np.nan], [5, 6]]}, "row 2, column 1: the value is nan"),
        ({"weight": [1, 1, -1, 1]}, "weight"),
        ({"weight": [1, 1]}, "weight"),
        ({"scale": "log"}, "scale"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"y": [0.5, 1.5, 2.25, 3.125]}, "continuous|Unknown label type"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(tmp_path, change, message):
    arguments = {"X": np.arange(8.0).reshape(4, 2), "y": [0, 1, 0, 1]} | change
    with pytest.raises(ValueError, match=message):
        Dataset.create(tmp_path / "bad", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path, rows):
    Dataset.create(tmp_path / "d", *rows)
    with pytest.raises(FileExistsError, match="already exists"):
        Dataset.create(tmp_path / "d", *rows)


def test_foreign_incomplete_and_damaged_groups_do_not_open(tmp_path, rows):
    with pytest.raises(ValueError, match="no Zarr group"):
        Dataset.open(tmp_path / "nothing")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="no Zarr group"):
        Dataset.open(tmp_path / "file")
    zarr.open_group(str(tmp_path / "foreign"), mode="w")
    with pytest.raises(ValueError, match="not a dasksvm data set"):
        Dataset.open(tmp_path / "foreign")
    path = str(tmp_path / "d")
    Dataset.create(path, *rows)
    group = zarr.open_group(path, mode="a")
    about = dict(group.attrs["dasksvm"])
    for change, message in (
        ({"version": 99}, "version 99"),
        ({"complete": False}, "incomplete"),
        ({"shape": [9, 7]}, "damaged"),
    ):
        group.attrs["dasksvm"] = about | change
        with pytest.raises(ValueError, match=message):
            Dataset.open(path)


def _write(path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 50))
    Dataset.create(path, X, (X[:, 0] > 0).astype(int), chunk_rows=500, random_state=0)


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.1, marks=pytest.mark.slow), 0.4, pytest.param(0.8, marks=pytest.mark.slow)]
)
def test_killed_while_writing_leaves_nothing_that_opens(tmp_path, seconds):
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(str(tmp_path / "d"),))
    process.start()
    deadline = time.monotonic() + 60
    while not any(path.name.endswith(".part") for path in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    if not (tmp_path / "d").exists():
        for path in tmp_path.iterdir():
            with pytest.raises(ValueError, match=r"not a data set|not a dasksvm data set|incomplete|no Zarr group"):
                Dataset.open(path)
    else:
        assert len(Dataset.open(tmp_path / "d")) == 200_000


def test_a_pickled_data_set_is_its_description(tmp_path, rows):
    data = Dataset.create(tmp_path / "d", *rows)
    data.rows(np.arange(10))
    pickled = pickle.dumps(data)
    assert len(pickled) < 4000
    again = pickle.loads(pickled)
    assert np.array_equal(again.rows(np.arange(10)), data.rows(np.arange(10)))


def test_labels_of_every_kind(tmp_path):
    X = np.arange(8.0).reshape(4, 2)
    for at, y in enumerate(
        [[True, False, True, False], [-1.0, 1.0, 1.0, -1.0], [3, 7, 3, 7], np.array(["a", "b"] * 2, object)]
    ):
        data = Dataset.create(tmp_path / str(at), X, y, shuffle=False)
        assert np.array_equal(data.labels(np.arange(4)), np.asarray(y))


def test_fit_from_a_path_is_fit_from_its_rows(tmp_path, rng):
    X = rng.normal(size=(900, 6))
    y = X[:, 0] * X[:, 1] > 0
    path = tmp_path / "d"
    data = Dataset.create(path, X, y, chunk_rows=200, random_state=1)
    model = LaSVC(C=5, random_state=0).fit(path)
    lazy = da.from_array(data.rows(np.arange(900)), chunks=(200, 6))
    same = LaSVC(C=5, random_state=0, gamma=model.model_.kernel.gamma).fit(lazy, data.labels(np.arange(900)))
    assert np.array_equal(model.support_, data.source_rows(same.support_))
    assert np.array_equal(X[model.support_], model.support_vectors_)
    assert model.score(path) == model.score(X, y)
    assert np.array_equal(model.predict(path).compute(), model.predict(data.rows(np.arange(900))))
    primal, dual, gap = model.duality_gap(path)
    assert np.allclose(model.duality_gap(X, y), (primal, dual, gap))
    assert gap >= 0
    assert digest(LaSVC(C=5, random_state=0).fit(str(path))) == digest(model)


def test_a_data_set_has_its_own_labels(tmp_path, rows):
    data = Dataset.create(tmp_path / "d", *rows)
    for arguments in ((data, rows[1]), (data, None, np.ones(503))):
        with pytest.raises(ValueError, match="must be None"):
            LaSVC().fit(*arguments)
    model = LaSVC(random_state=0).fit(data)
    with pytest.raises(ValueError, match="must be None"):
        model.score(data, rows[1])
    other = Dataset.create(tmp_path / "other", rows[0][:, :5], rows[1])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(other)
