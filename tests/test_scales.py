"""Columns on very different scales are warned of where they are trained on, and only there."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from dasksvm import SMOSVC, ActiveLearner, Dataset, GapSVC, LaSVC, MulticlassSVC, ScaleWarning, TrackingSVC
from dasksvm.data.statistics import Spread
from dasksvm.solver.kernels.registry import KERNELS

SOLVERS = [LaSVC, SMOSVC, GapSVC, TrackingSVC, MulticlassSVC]


def counts(rows=300, seed=0):
    """As in mail: many shares of words, which are mostly 0, and the lengths of runs of capitals."""
    rng = np.random.default_rng(seed)
    words = np.round(rng.exponential(0.5, (rows, 20)) * (rng.random((rows, 20)) < 0.3), 2)
    runs = np.ceil(rng.lognormal(3.0, 1.5, (rows, 1)) * 10)
    X = np.hstack([words, runs]).astype("f4")
    return X, np.where(words[:, 0] + words[:, 1] > 0.3, "spam", "ham")


@pytest.mark.parametrize("make", SOLVERS)
def test_every_estimator_warns_of_columns_that_are_not_scaled(make):
    X, y = counts()
    with pytest.warns(ScaleWarning, match=r"dominate the kernel: 20 \(.* to .*\)\. Scale them, .* StandardScaler"):
        make(max_time=5).fit(X, y)
    make(max_time=5).fit(StandardScaler().fit_transform(X), y)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "rbf"])
def test_every_kernel_takes_scales_for_importance(kernel):
    X, y = counts(60)
    with pytest.warns(ScaleWarning):
        LaSVC(kernel=kernel, gamma=1e-9, max_examples=30).fit(X, y)


@pytest.mark.parametrize("kind", ["csr", "dask", "frame", "zarr", "zarr with names", "partial_fit", "pool"])
def test_whatever_the_rows_come_in(kind, tmp_path):
    X, y = counts()
    given, labels, method, told = X, y, "fit", r"20 \(.*StandardScaler"
    if kind == "csr":
        given = sp.csr_matrix(X)
    elif kind == "dask":
        given = da.from_array(X, chunks=100)
    elif kind in ("frame", "zarr with names"):
        given = pd.DataFrame(X, columns=[f"c{at}" for at in range(21)])
        told = r"c20 \("
    elif kind == "partial_fit":
        with pytest.warns(ScaleWarning, match=told):
            LaSVC().partial_fit(X, y, classes=["ham", "spam"])
        return
    elif kind == "pool":
        with pytest.warns(ScaleWarning, match=told):
            ActiveLearner(LaSVC(), X)
        return
    if "zarr" in kind:
        scaled = Dataset.create(tmp_path / "scaled.zarr", given, y, scale="minmax")
        LaSVC().fit(scaled)
        with pytest.warns(ScaleWarning, match="If you train on these rows"):
            given, labels = Dataset.create(tmp_path / "d.zarr", given, y), None
        told = r"20 \(.* to .*\)\. Write the data set with scale='standard' or 'minmax'"
    with pytest.warns(ScaleWarning, match=told):
        getattr(LaSVC(), method)(given, labels)


def pixels(rows=200):
    """Pixels from 0 to 255, those at the edge seldom more than 0."""
    rng = np.random.default_rng(0)
    ink = rng.random((rows, 64)) < np.linspace(0.01, 0.9, 64)
    return (ink * rng.integers(1, 256, (rows, 64))).astype(np.uint8)


def flags(rows=2000):
    """0 and 1, some of them very rare."""
    return (np.random.default_rng(0).random((rows, 40)) < np.geomspace(5e-4, 0.5, 40)).astype("f4")


@pytest.mark.parametrize(
    "X",
    [
        pixels(),
        pixels() / 255.0,
        flags(),
        StandardScaler().fit_transform(flags(20000)),
        MinMaxScaler().fit_transform(counts()[0]),
        StandardScaler().fit_transform(counts()[0]),
        np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 10.0, 60.0],
        np.random.default_rng(0).standard_cauchy((500, 1)) + np.zeros((500, 3)),
        # Of so few rows nothing is known.
        np.array([[1.0, 2.0, 3000.0], [1.1, 2.9, -9000.0]]),
        np.ones((50, 4)),
    ],
    ids=["pixels", "to 1", "flags", "even flags", "even counts", "even too", "units", "tails", "few", "constant"],
)
def test_ordinary_rows_are_not_warned_of(X):
    assert Spread.of(np.asarray(X)).warning(None, "") is None
    assert Spread.of(sp.csr_matrix(X)).warning(None, "") is None


def test_a_sample_of_many_rows_is_looked_at(monkeypatch):
    X, y = counts(5000)
    looked = []
    of = Spread.of.__func__
    monkeypatch.setattr(Spread, "of", classmethod(lambda cls, rows: looked.append(rows.shape) or of(cls, rows)))
    for given in (X, sp.csr_matrix(X), da.from_array(X, chunks=2500)):
        with pytest.warns(ScaleWarning):
            LaSVC(max_examples=50).fit(given, y)
    assert looked == [(1000, 21), (1000, 21), (834, 21)]
