"""The Laplacian kernel: its values, its γ, and everything a kernel has to work with."""

import tracemalloc
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.svm import SVC

import dasksvm
from dasksvm import SMOSVC, Dataset, GapSVC, KernelModel, LaSVC, MulticlassSVC, TrackingSVC
from dasksvm.data.sources import DatasetSource, deviation, moments
from dasksvm.solver.kernels import laplacian
from dasksvm.solver.kernels.features import DenseFeatures, SparseFeatures
from dasksvm.solver.kernels.kernel import BLOCK_ROWS, Kernel
from tests.clusters import cluster, same
from tests.helpers import blobs, kernel_matrix
from tests.test_cli import call

GAMMA = 0.2
KERNEL = Kernel("laplacian", GAMMA)


def matrix(rows, columns, seed, share=0.4):
    """Values of both signs, many of them zeros."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < share)


def features(X, dtype, kind):
    if kind == "dense":
        return DenseFeatures.of(X.astype(dtype))
    X = sp.csr_matrix(X)
    return SparseFeatures.of(X.data.astype(dtype), X.indices, X.indptr, X.shape[1])


def gamma_of(X, **options):
    """The γ that an estimator chooses; few examples are enough to see it."""
    X = Dataset.open(X) if isinstance(X, str) else X
    y = None if isinstance(X, Dataset) else np.arange(X.shape[0]) % 2
    return LaSVC(kernel="laplacian", random_state=0, **options).fit(X, y).model_.kernel.gamma


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("width", [1, 3, laplacian.FEATURES, 2 * laplacian.FEATURES + 7])
def test_values_are_those_of_the_formula(kind, dtype, tolerance, width):
    """Also where a tile has several blocks of rows and columns, with some left over."""
    X, Z = matrix(BLOCK_ROWS + 3, width, 0), matrix(laplacian.COLUMNS + 5, width, 1)
    tile = KERNEL.tile(features(X, dtype, kind), features(Z, dtype, kind))
    assert tile.dtype == dtype
    np.testing.assert_allclose(tile, kernel_matrix("laplacian", X, Z, GAMMA, 0.0, 0), atol=tolerance)
    np.testing.assert_allclose(tile, laplacian_kernel(X, Z, GAMMA), atol=tolerance)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_tile(kind, dtype):
    X, Z = (features(matrix(rows, 41, seed), dtype, kind) for rows, seed in ((BLOCK_ROWS + 40, 0), (300, 1)))
    whole, order = KERNEL.tile(X, Z), np.random.default_rng(2).permutation(300)
    np.testing.assert_array_equal(KERNEL.tile(X, Z, order), whole[:, order])
    for top, bottom, left, right in ((0, 1, 0, 300), (500, 530, 3, 20), (7, 500, 250, 300), (9, 10, 299, 300)):
        part = KERNEL.tile(X.part(top, bottom), Z.part(left, right))
        np.testing.assert_array_equal(part, whole[top:bottom, left:right])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_stay_between_0_and_1(kind, dtype):
    X = features(1e4 * matrix(60, 30, 0), dtype, kind)
    tile = KERNEL.tile(X, X)
    assert tile.min() >= 0.0
    assert tile.max() <= 1.0
    np.testing.assert_array_equal(KERNEL.diagonal(X), 1.0)


def test_tiles_take_no_memory_beyond_themselves():
    X = DenseFeatures.of(matrix(400, 100, 0))
    out = np.empty((400, 400))
    KERNEL.tile(X, X, out=out)
    tracemalloc.start()
    KERNEL.tile(X, X, out=out)
    assert tracemalloc.get_traced_memory()[1] < X.values.nbytes
    tracemalloc.stop()


# γ


def test_gamma_of_rows_in_memory():
    X = 3.0 + matrix(200, 7, 0)
    assert gamma_of(X, gamma="auto") == 1 / 7
    expected = 1 / (7 * np.abs(X - X.mean()).mean())
    assert gamma_of(X) == pytest.approx(expected, rel=1e-12)
    assert gamma_of(sp.csr_matrix(X)) == pytest.approx(expected, rel=1e-12)
    assert gamma_of(da.from_array(X, chunks=(60, 7))) == pytest.approx(expected, rel=1e-12)
    sparse = matrix(200, 7, 0, share=0.1)
    assert gamma_of(sp.csr_matrix(sparse)) == pytest.approx(1 / (7 * np.abs(sparse - sparse.mean()).mean()), rel=1e-12)
    assert gamma_of(np.ones((20, 3))) == 1.0


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("scale", ["none", "minmax"])
def test_gamma_of_data_sets_is_that_of_their_scaled_rows(tmp_path, kind, scale):
    X = np.abs(matrix(200, 7, 0)) * np.arange(1, 8)
    given = sp.csr_matrix(X) if kind == "sparse" else X
    Dataset.create(tmp_path / "data", given, np.arange(200) % 2, scale=scale, chunk_rows=60, random_state=0)
    seen = X if scale == "none" else (X - X.min(axis=0)) / np.ptp(X, axis=0)
    assert gamma_of(str(tmp_path / "data")) == pytest.approx(1 / (7 * np.abs(seen - seen.mean()).mean()), rel=1e-12)


def test_an_order_of_deviation_that_nobody_knows_is_refused(tmp_path):
    source = DatasetSource(Dataset.create(tmp_path / "data", matrix(20, 3, 0), np.arange(20) % 2, random_state=0))
    mean, variance, _ = moments(source)
    assert deviation(source, mean, variance, 2) == variance
    with pytest.raises(ValueError, match="unknown order of deviation 3"):
        deviation(source, mean, variance, 3)


# Everything a kernel has to work with


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("estimator", [LaSVC(epochs="converged"), SMOSVC()], ids=lambda each: type(each).__name__)
def test_the_optimum_is_that_of_svc(estimator, kind):
    X, y = blobs(200)
    X = np.where(np.abs(X) < 0.3, 0.0, X)
    ours = sp.csr_matrix(X) if kind == "sparse" else X
    estimator.set_params(kernel="laplacian", gamma=GAMMA, C=2.0, tol=1e-5, dtype="float64", random_state=0)
    peer = SVC(kernel=partial(laplacian_kernel, gamma=GAMMA), C=2.0, tol=1e-5).fit(X, y)
    model = estimator.fit(ours, y)
    np.testing.assert_allclose(model.decision_function(ours), peer.decision_function(X), atol=1e-3)
    found = model.certificate(ours, y)
    assert found.violation[0] <= 1.01e-5
    assert abs(found.gap) < 1e-2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [LaSVC, SMOSVC, GapSVC, TrackingSVC, MulticlassSVC])
def test_every_estimator_trains(kind, dtype):
    X, y = blobs(150)
    y = np.where(X[:, 0] > 1.0, 2, y) if kind is MulticlassSVC else y
    model = kind(kernel="laplacian", dtype=dtype, random_state=0).fit(X, y)
    assert model.model_.kernel.name == "laplacian"
    assert model.score(X, y) > 0.85
    assert np.isfinite(model.certificate(X, y).primal)


def test_threads_do_not_change_a_bit():
    X, y = blobs(500)
    models = []
    for threads in (1, 3):
        with dask.config.set({"dasksvm.threads": threads}):
            models.append(LaSVC(kernel="laplacian", random_state=0).fit(X, y).model_)
    assert same(*models)


def test_a_cluster_finds_the_same_model(tmp_path):
    X, y = blobs(600)
    data = Dataset.create(tmp_path / "data", X, y, chunk_rows=100, random_state=0)
    alone = LaSVC(kernel="laplacian", random_state=0).fit(data)
    with cluster() as client:
        together = LaSVC(kernel="laplacian", random_state=0, client=client).fit(data)
    assert same(alone.model_, together.model_)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_model_files(tmp_path, kind):
    X, y = blobs(100)
    X = sp.csr_matrix(X) if kind == "sparse" else X
    model = LaSVC(kernel="laplacian", random_state=0).fit(X, y).model_
    model.save(tmp_path / "model")
    again = dasksvm.load(tmp_path / "model")
    assert again.kernel == model.kernel
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    with pytest.raises(ValueError, match=r"LIBSVM's format has no kernel 'laplacian'\. It has linear, polynomial"):
        model.to_libsvm(tmp_path / "text")
    assert not (tmp_path / "text").exists()
    with pytest.raises(ValueError, match=r"SVC has no kernel 'laplacian' by name\. Its kernels are linear, poly"):
        model.to_sklearn()
    with pytest.raises(ValueError, match=r"the kernel .* is not supported"):
        KernelModel.from_sklearn(SVC(kernel=laplacian_kernel).fit(X.toarray() if kind == "sparse" else X, y))


def test_the_command_line(tmp_path):
    X, y = blobs(100)
    data = Dataset.create(tmp_path / "data", X, y, random_state=0)
    result = call("train", data.path, tmp_path / "model", "--kernel", "laplacian", "-q")
    assert result.exit_code == 0, result.output
    shown = call("info", tmp_path / "model")
    assert "kernel            laplacian gamma=" in shown.output
    assert "laplacian" in call("train", "--help").output
