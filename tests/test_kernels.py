import numpy as np
import pytest
import scipy.sparse as sp

from dasksvm.solver.engine.exact_sums import BLOCK, add_sums_among, blocks_among
from dasksvm.solver.kernels.features import DenseFeatures, FeatureStore, SparseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from tests.helpers import kernel_matrix


def rows_of(features):
    if isinstance(features, DenseFeatures):
        return features.values
    line_of, lines = features.compact()
    out = np.zeros((len(features), features.width), features.dtype)
    used = np.flatnonzero(line_of >= 0)
    out[:, used] = lines[line_of[used]].T
    return out


def sparse(matrix):
    return SparseFeatures.of(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 1500), (700, 30), (0, 4), (4, 0)])
def test_tile_equals_the_definition(rng, name, dtype, tolerance, rows, columns):
    X, Z = rng.normal(size=(rows, 6)), rng.normal(size=(columns, 6))
    kernel = Kernel(name, 0.3, 0.5, 3)
    tile = kernel.tile(DenseFeatures.of(X.astype(dtype)), DenseFeatures.of(Z.astype(dtype)))
    expected = kernel_matrix(name, X, Z, 0.3, 0.5, 3)
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    assert tile.dtype == dtype
    np.testing.assert_allclose(tile, expected, atol=tolerance * scale)


@pytest.mark.parametrize("name", KERNELS)
def test_sparse_members_give_the_same_values(rng, name):
    X, Z = sp.random(40, 30, 0.2, "csr", rng=rng), sp.random(70, 30, 0.2, "csr", rng=rng)
    kernel = Kernel(name, 0.3, 0.5, 2)
    dense = kernel.tile(DenseFeatures.of(X.toarray()), DenseFeatures.of(Z.toarray()))
    np.testing.assert_allclose(kernel.tile(sparse(X), sparse(Z)), dense, atol=1e-12)
    order = rng.permutation(70)
    np.testing.assert_array_equal(kernel.tile(sparse(X), sparse(Z), order), kernel.tile(sparse(X), sparse(Z))[:, order])


def test_diagonal_is_the_kernel_of_a_row_with_itself(rng):
    X = DenseFeatures.of(rng.normal(size=(5, 3)))
    for name in KERNELS:
        kernel = Kernel(name, 0.3, 0.5, 3)
        np.testing.assert_allclose(kernel.diagonal(X), np.diag(kernel.tile(X, X)), atol=1e-12)


def test_rbf_is_at_most_one_and_never_negative(rng):
    X = DenseFeatures.of((1000 * rng.normal(size=(50, 3))).astype(np.float32))
    tile = Kernel("rbf", 1.0).tile(X, X)
    assert tile.max() <= 1.0
    assert tile.min() >= 0.0


def test_float32_exp_is_accurate_to_its_last_bits():
    exponents = np.linspace(-80, 0, 100_001)
    rows = DenseFeatures.of(np.sqrt(-exponents)[:, None].astype(np.float32))
    origin = DenseFeatures.of(np.zeros((1, 1), np.float32))
    values = Kernel("rbf", 1.0).tile(rows, origin)[:, 0]
    exact = np.exp(-(rows.values[:, 0].astype(np.float64) ** 2))
    large = exact > 1e-30
    assert np.max(np.abs(values[large] / exact[large] - 1)) < 1e-5


def test_order_and_threads_do_not_change_a_bit(rng):
    X = DenseFeatures.of(rng.normal(size=(300, 20)).astype(np.float32))
    order = rng.permutation(300)
    kernel = Kernel("rbf", 0.1)
    np.testing.assert_array_equal(kernel.tile(X, X, order), kernel.tile(X, X.take(order)))
    np.testing.assert_array_equal(kernel.tile(X, X, order), kernel.tile(X, X, order))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_store_views_never_change(rng, kind):
    matrix = sp.random(60, 8, 0.4, "csr", rng=rng)
    rows = sparse(matrix) if kind == "sparse" else DenseFeatures.of(matrix.toarray())
    store = FeatureStore(rows.part(0, 0))
    views = []
    for start in range(0, 60, 7):
        slots = store.append(rows.part(start, min(start + 7, 60)))
        assert slots[0] == start
        views.append(store.view())
    for view in views:
        np.testing.assert_array_equal(rows_of(view), matrix.toarray()[: len(view)])
        np.testing.assert_allclose(view.squares, (matrix.toarray() ** 2).sum(axis=1)[: len(view)])
        with pytest.raises(ValueError, match="read-only"):
            view.squares[:1] = 0
    picked = rng.integers(0, 60, 20)
    np.testing.assert_array_equal(rows_of(store.view().take(picked)), matrix.toarray()[picked])
    np.testing.assert_array_equal(rows_of(store.view().part(3, 9)), matrix.toarray()[3:9])


def test_a_flag_that_blas_sets_by_accident_is_no_warning(rng, monkeypatch):
    rows, columns = DenseFeatures.of(rng.normal(size=(1, 5))), DenseFeatures.of(rng.normal(size=(6, 5)))
    exact = np.matmul

    def flags(*operands, out):
        np.multiply(np.float32(0), np.float32(np.inf))
        return exact(*operands, out=out)

    monkeypatch.setattr(np, "matmul", flags)
    assert np.isfinite(Kernel("rbf", 0.2).tile(rows, columns)).all()


@pytest.mark.parametrize("features", [DenseFeatures.of, lambda X: sparse(sp.csr_matrix(X))], ids=["dense", "sparse"])
@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 76])
def test_sums_among_members_in_float64_use_each_value_twice(count, features):
    rng = np.random.default_rng(count)
    X = rng.normal(size=(count, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0.0
    members, alpha = features(X), rng.normal(size=(3, count))
    expected = alpha @ kernel_matrix("rbf", X.astype(np.float64), X.astype(np.float64), 0.4, 0, 0)
    found = np.zeros((2, 3, count))
    for half in range(2):
        add_sums_among(Kernel("rbf", 0.4), members, alpha, range(blocks_among(count))[half::2], found[half])
    np.testing.assert_allclose(found.sum(axis=0), expected, atol=1e-10)
