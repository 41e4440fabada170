"""Files of every kind become data sets: what was written is what is read, and bad files are named in one line."""

import bz2
import gzip
import resource
import subprocess
import sys

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from dasksvm import Dataset, LaSVC, ScaleWarning
from dasksvm.cli.main import main
from dasksvm.data.ingest import writer
from dasksvm.data.ingest.readers import parquet, reader, text
from dasksvm.data.ingest.readers.parsing import FINE, parse_number
from tests.clusters import cluster


@pytest.fixture
def table(rng):
    X = rng.normal(size=(300, 5)).astype(np.float32)
    X[:, 3] = rng.integers(0, 3, 300)
    return X, np.where(rng.random(300) < 0.4, "no", "yes")


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of a few lines, so that small files have many."""
    for module in (parquet, reader, text):
        monkeypatch.setattr(module, "PIECE_BYTES", 700)
    monkeypatch.setattr(writer, "BUCKET_BYTES", 1000)


def same(data, X, y, weight=None):
    ids = np.arange(len(data))
    source = data.source_rows(ids)
    rows = data.rows(ids)
    assert data.shape == X.shape
    assert np.array_equal(np.sort(source), ids)
    assert np.array_equal(rows.toarray() if data.sparse else rows, np.asarray(X)[source])
    assert data.labels(ids).tolist() == np.asarray(y)[source].tolist()
    assert np.array_equal(data.weights(ids), np.ones(len(ids)) if weight is None else weight[source])
    for name, value in (("mean", X.mean(axis=0, dtype=float)), ("minimum", X.min(axis=0)), ("maximum", X.max(axis=0))):
        assert np.allclose(getattr(data, name), value, atol=1e-6)
    assert np.allclose(data.variance, X.var(axis=0, dtype=float), rtol=1e-6)


def write_csv(path, X, y, delimiter=",", names=None, quote="", opener=open):
    lines = [] if names is None else [delimiter.join(names)]
    lines += [
        delimiter.join([*(repr(float(value)) for value in row), f"{quote}{label}{quote}"])
        for row, label in zip(X, y, strict=True)
    ]
    with opener(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("opener", [open, gzip.open, bz2.open])
def test_csv(tmp_path, table, small_pieces, opener, shuffle):
    X, y = table
    end = {gzip.open: ".gz", bz2.open: ".bz2"}.get(opener, "")
    path = tmp_path / f"a.csv{end}"
    write_csv(path, X, y, names=["a", "b", "c", "d", "e", "class"], opener=opener)
    data = Dataset.create(tmp_path / "d", path, random_state=1, shuffle=shuffle, chunk_rows=40)
    same(data, X, y)
    assert data.names == ["a", "b", "c", "d", "e"]
    assert data.dtype == np.float32
    assert data.origin == str(path)


def test_columns_by_name_and_number_quotes_and_line_ends(tmp_path, table, rng):
    X, y = table
    weight = rng.integers(1, 99, 300) / 8
    path = tmp_path / "a.tsv"
    lines = ['"y"\tw\t' + "\t".join(f'"f{at}, quoted"' for at in range(5))]
    lines += [
        f'"{label}"\t{float(w)!r}\t' + "\t".join(f" {float(v)!r} " for v in row)
        for label, w, row in zip(y, weight, X, strict=True)
    ]
    path.write_bytes("\r\n\r\n".join(lines).encode())  # blank lines, no newline at the end
    double = Dataset.create(tmp_path / "name", path, "y", "w", dtype="float64", shuffle=False)
    assert double.dtype == np.float64
    assert np.allclose(double.rows(np.arange(300)), X, rtol=1e-15, atol=0)
    data = Dataset.create(tmp_path / "number", path, "0", "1")
    same(data, X, y, weight)
    assert data.names[0] == "f0, quoted"
    write_csv(tmp_path / "c.csv", X, y, names=['"a, b"', "b", "c", "d", "e", "label"])
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "c.csv").read_bytes())
    data = Dataset.create(tmp_path / "comma", marked)
    same(data, X, y)
    assert data.names[:2] == ["a, b", "b"]
    write_csv(tmp_path / "b.csv", X, y, delimiter=";", quote='"')
    bare = tmp_path / "bare.csv"
    bare.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "b.csv").read_bytes())
    same(Dataset.create(tmp_path / "bare", bare), X, y)
    same(Dataset.create(tmp_path / "last", tmp_path / "b.csv"), X, y)
    same(Dataset.create(tmp_path / "minus", tmp_path / "b.csv", "-1", header=False), X, y)


def test_svmlight_stays_sparse(tmp_path, small_pieces, rng):
    X = sp.random(300, 40, 0.1, format="csr", random_state=0, dtype=np.float32)
    X.resize(300, 45)  # no entries there
    y = np.where(rng.random(300) < 0.5, -1, 1)
    for zero_based in (False, True):
        path = tmp_path / f"{zero_based}.svm"
        dump_svmlight_file(X, y, str(path), zero_based=zero_based, query_id=np.arange(300), comment="a file")
        data = Dataset.create(
            tmp_path / f"{zero_based}.zarr", path, features=45, zero_based=zero_based, random_state=0, chunk_rows=30
        )
        same(data, X.toarray(), y)
        assert data.sparse
        assert data.nonzeros == X.nnz
    data = Dataset.create(tmp_path / "found", path, zero_based=True)
    assert data.shape[1] == X.indices.max() + 1
    with gzip.open(tmp_path / "a.svm.gz", "wb") as file:
        file.write(path.read_bytes())
    same(Dataset.create(tmp_path / "gz", tmp_path / "a.svm.gz", features=45, zero_based=True), X.toarray(), y)


def test_csr_is_stored_as_anndata_does_and_never_made_dense(tmp_path, small_pieces, rng):
    X = sp.random(200, 60, 0.05, format="csr", random_state=0)
    y = rng.integers(0, 2, 200)
    data = Dataset.create(tmp_path / "d", X, y, chunk_rows=30, shuffle=False)
    same(data, X.toarray(), y)
    group = zarr.open_group(str(tmp_path / "d"), mode="r")["X"]
    assert group.attrs["encoding-type"] == "csr_matrix"
    assert group.attrs["shape"] == [200, 60]
    assert group["indptr"].dtype == np.int64
    again = sp.csr_matrix((group["data"][:], group["indices"][:], group["indptr"][:]), shape=(200, 60))
    assert (again != X).nnz == 0
    blocks = data.as_dask()[0]
    assert all(sp.issparse(blocks.blocks[at].compute()) for at in range(7))
    lazy = Dataset.create(tmp_path / "lazy", blocks, data.as_dask()[1], shuffle=False)
    same(lazy, X.toarray(), y)
    whole = Dataset.create(tmp_path / "whole", X, y, shuffle=False)  # one chunk
    same(whole, X.toarray(), y)
    with pytest.raises(ValueError, match="shift sparse rows"):
        Dataset.create(tmp_path / "refused", X, y, scale="standard")


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.int16, np.bool_])
def test_npy_and_npz_keep_the_type(tmp_path, small_pieces, rng, kind):
    X = rng.integers(0, 2, (300, 8)).astype(kind)
    X[0], X[1] = 0, 1
    y = rng.integers(0, 2, 300)
    expected = X.astype(np.uint8) if kind is np.bool_ else X
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "y.txt").write_text("\n".join("ab"[code] for code in y))
    np.savez(tmp_path / "a.npz", X=X, target=y)
    np.savez_compressed(tmp_path / "b.npz", X=X, y=y)
    for number, (source, labels) in enumerate(
        [("X.npy", tmp_path / "y.npy"), ("X.npy", y), ("a.npz", "target"), ("b.npz", None)]
    ):
        data = Dataset.create(tmp_path / str(number), tmp_path / source, labels, random_state=0)
        same(data, expected, y)
        assert data.dtype == expected.dtype
    text = Dataset.create(tmp_path / "text", tmp_path / "X.npy", str(tmp_path / "y.txt"))
    assert text.classes.tolist() == ["a", "b"]


def test_csr_in_an_archive(tmp_path, small_pieces, rng):
    X = sp.random(300, 50, 0.1, format="csr", random_state=0)
    y = rng.integers(0, 2, 300)
    np.save(tmp_path / "y.npy", y)
    sp.save_npz(tmp_path / "a.npz", X)
    same(Dataset.create(tmp_path / "d", tmp_path / "a.npz", tmp_path / "y.npy", random_state=0), X.toarray(), y)


def test_parquet(tmp_path, table, rng):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde")).astype({"d": np.int8})
    frame.insert(2, "target", y)
    frame["w"] = weight = rng.random(300)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=70)
    data = Dataset.create(tmp_path / "d", tmp_path / "a.parquet", weight="w", random_state=0)
    same(data, X, y, weight)
    assert data.names == list("abcde")
    (tmp_path / "parts").mkdir()
    frame[:100].to_parquet(tmp_path / "parts/0.parquet")
    frame[100:].to_parquet(tmp_path / "parts/1.parquet")
    same(Dataset.create(tmp_path / "e", tmp_path / "parts", "target", "w", format="parquet"), X, y, weight)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 5)
    pq.write_table(pa.table({"embedding": lists, "y": y}), tmp_path / "lists.parquet")
    data = Dataset.create(tmp_path / "f", tmp_path / "lists.parquet")
    same(data, X, y)
    assert data.dtype == np.float32


@pytest.mark.parametrize("kind", ["zarr", "h5ad"])
@pytest.mark.parametrize("sparse", [True, False])
def test_anndata(tmp_path, small_pieces, rng, kind, sparse):
    X = sp.random(300, 20, 0.2, format="csr", random_state=0, dtype=np.float32)
    codes = rng.integers(0, 2, 300).astype(np.int8)
    path = str(tmp_path / f"a.{kind}")
    if kind == "zarr":
        store = zarr.open_group(path, mode="w")

        def put(group, name, values):
            group.create_array(name, data=values)
    else:
        import h5py

        store = h5py.File(path, "w")

        def put(group, name, values):
            group.create_dataset(name, data=values)

    if sparse:
        matrix = store.create_group("X")
        matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [300, 20]})
        for name in ("data", "indices", "indptr"):
            put(matrix, name, getattr(X, name))
    else:
        put(store, "X", X.toarray())
    obs = store.create_group("obs")
    label = obs.create_group("cell_type")
    put(label, "codes", codes)
    put(label, "categories", np.array([3, 7]))
    put(obs, "depth", np.full(300, 0.5))
    if kind == "h5ad":
        store.close()
    data = Dataset.create(tmp_path / "d", path, "cell_type", "depth", random_state=0)
    same(data, X.toarray(), np.array([3, 7])[codes], np.full(300, 0.5))
    assert data.sparse == sparse
    with cluster() as client:
        remote = Dataset.create(tmp_path / "e", path, "cell_type", "depth", random_state=0, client=client)
    same(remote, X.toarray(), np.array([3, 7])[codes], np.full(300, 0.5))


def test_dataframes(tmp_path, table):
    import dask.dataframe as dd

    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde"))
    data = Dataset.create(tmp_path / "pandas", frame, pd.Series(y), random_state=0)
    same(data, X, y)
    assert data.names == list("abcde")
    frame["y"] = y
    lazy = dd.from_pandas(frame, npartitions=4)
    data = Dataset.create(tmp_path / "dask", lazy, "y", random_state=0)
    same(data, X, y)
    with pytest.raises(ValueError, match="has no column 'z'"):
        Dataset.create(tmp_path / "bad", lazy, "z")
    with pytest.raises(ValueError, match="to_dask_array"):
        Dataset.create(tmp_path / "bad", lazy, y)


def test_on_a_cluster_the_same(tmp_path, table, small_pieces):
    X, y = table
    write_csv(tmp_path / "a.csv", X, y)
    alone = Dataset.create(tmp_path / "alone", tmp_path / "a.csv", random_state=0)
    with cluster() as client:
        data = Dataset.create(tmp_path / "d", tmp_path / "a.csv", random_state=0, client=client)
        Dataset.create(tmp_path / "array", X, y, client=client)  # is not sent
    ids = np.arange(300)
    assert np.array_equal(data.rows(ids), alone.rows(ids))
    same(data, X, y)


@given(st.floats(-1e300, 1e300), st.sampled_from(["r", ".3f", ".17g", "e", ".6e", "+g"]))
@settings(max_examples=300)
def test_numbers_are_read_to_an_ulp_or_two(value, form):
    written = repr(value) if form == "r" else format(value, form)
    expected = float(written)
    read, code = parse_number(np.frombuffer(written.encode(), np.uint8), 0, len(written))
    assert code == FINE
    assert read == pytest.approx(expected, rel=1e-15, abs=5e-324)


@pytest.mark.parametrize(
    "word", ["", " ", "-", "1.2.3", "1e", "abc", "0x1", "1,2", "--1", "nan", "inf", "-Infinity", "1e400"]
)
def test_what_is_no_number(word):
    assert parse_number(np.frombuffer(word.encode(), np.uint8), 0, len(word))[1] != FINE


GOOD = "a,b,y\n" + "1,2,x\n3,4,z\n" * 60
SPARSE = "1 1:0.5 3:2\n-1 2:1\n" * 60
BAD = {
    "ragged": ("a.csv", GOOD + "1,2,3,x\n", "line 122 (row 120): the line has 4 columns, expected 3"),
    "word": ("a.csv", GOOD + "1,zwei,x\n", "line 122 (row 120), column 1 (b): 'zwei' is not a number"),
    "nan": ("a.csv", GOOD + "nan,2,x\n", "line 122 (row 120), column 0 (a): the value is 'nan'"),
    "missing": ("a.csv", GOOD + ",2,x\n", "line 122 (row 120), column 0 (a): the value is missing"),
    "label": ("a.csv", GOOD + "1,2,\n", "row 120, column label: the label is missing"),
    "continuous": ("a.csv", "a,b,y\n" + "1,2,0.5\n", "row 0, column label: 0.5 is not a class label"),
    "empty": ("a.csv", "", "is empty"),
    "blank": ("a.csv", "\n\n", "is empty"),
    "header": ("a.csv", "a,b,y\n", "there are no rows"),
    "narrow": ("a.csv", "y\n1\n2\n", "none of which is left for features"),
    "pair": ("a.svm", SPARSE + "1 2:1 x\n", "line 121 (row 120): 'x' is not an index:value pair"),
    "value": ("a.svm", SPARSE + "1 2:x\n", "line 121 (row 120), column 2: '2:x' is not a number"),
    "index": ("a.svm", SPARSE + "1 0:1\n", "'0:1': indices begin with 1"),
    "order": ("a.svm", SPARSE + "1 2:1 2:3\n", "'2:3': indices must increase"),
    "huge": ("a.svm", SPARSE + "1 4294967301:1\n", "index of '4294967301:1' exceeds the number of features"),
    "beyond": ("a.svm", SPARSE + "1 9:1\n", "index of '9:1' exceeds the number of features"),
    "suffix": ("a.data", "1\n", "the name does not show the format"),
    "not parquet": ("a.parquet", "hello", "is not a complete Parquet file"),
    "not npy": ("a.npy", "hello", "is not a complete NPY file"),
    "not npz": ("a.npz", "hello", "cannot be read"),
    "not hdf5": ("a.h5ad", "hello", "is not a complete HDF5 file"),
    "gz": (
        "a.csv.gz",
        gzip.compress(b"a,b,y\n" + b"1,2,x\n" * 50_000)[:-30],
        "the compressed data end early or are damaged",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_in_one_line_and_leave_nothing(tmp_path, small_pieces, case):
    name, content, message = BAD[case]
    source = tmp_path / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    options = {"svm": ["--features", "5"], "npy": ["--label", str(source)], "h5ad": ["--label", "y"]}
    more = options.get(name.rpartition(".")[2], [])
    result = CliRunner().invoke(main, ["ingest", str(source), str(tmp_path / "d.zarr"), *more])
    assert result.exit_code == 4
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("dasksvm:")]
    assert message in line
    assert str(source) in line
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_value_that_is_not_finite_deep_in_an_array(tmp_path, small_pieces, rng):
    X = rng.normal(size=(5000, 3))
    X[4321, 2] = np.inf
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(ValueError, match=r"a\.npy: row 4321, column 2: the value is inf"):
        Dataset.create(tmp_path / "d", tmp_path / "a.npy", np.arange(5000) % 2)
    S = sp.csr_matrix(np.where(np.abs(X) > 1, X, 0))
    with pytest.raises(ValueError, match="row 4321, column 2: the value is inf"):
        Dataset.create(tmp_path / "d", S, np.arange(5000) % 2)
    frame = pd.DataFrame({"a": [1.0, None], "y": [0, 1]})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="row 1, column a: the value is missing"):
        Dataset.create(tmp_path / "d", tmp_path / "a.parquet")


def test_targets_that_cannot_be_written(tmp_path, table):
    X, y = table
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/d cannot be written: "):
        Dataset.create(tmp_path / "file" / "d", X, y)
    write_csv(tmp_path / "a.csv", np.repeat(X, 40, axis=0), np.repeat(y, 40))

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    code = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from dasksvm.cli.main import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code, "ingest", str(tmp_path / "a.csv"), str(tmp_path / "d")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert found.returncode == 4
    assert f"dasksvm: {tmp_path / 'd'} cannot be written: File too large" in found.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "file"]


def test_columns_on_different_scales_are_warned_of(tmp_path, rng):
    X = rng.normal(size=(100, 4))
    y = np.arange(100) % 2
    X[:, 2] *= 5000
    # What it is for nobody knows here: the advice is right for both.
    told = r"very different scales.*: 2 \(.*\)\. If you train on these rows, use scale='standard' .* you need neither"
    with pytest.warns(ScaleWarning, match=told):
        Dataset.create(tmp_path / "a", X, y)
    Dataset.create(tmp_path / "b", X, y, scale="standard")
    Dataset.create(tmp_path / "c", X[:, :2] * 100, y)


def ingest(path, *arguments):
    return Dataset.create(path, *arguments, random_state=0)


def test_names_are_told_from_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("0,1,2,y\n1,2,3,a\n4,5,6,b\n")  # names that are numbers, and one that is a label's
    assert len(ingest(tmp_path / "a", tmp_path / "a.csv")) == 2
    (tmp_path / "b.csv").write_text(",a,b,kind\n0,2,3,u\n1,5,6,v\n")  # a written index
    data = ingest(tmp_path / "b", tmp_path / "b.csv")
    assert data.names == ["", "a", "b"]
    assert data.classes.tolist() == ["u", "v"]
    (tmp_path / "c.csv").write_text("1,2,setosa\n4,5,virginica\n")
    assert len(ingest(tmp_path / "c", tmp_path / "c.csv")) == 2


def test_labels_that_only_look_like_numbers_stay_apart(tmp_path):
    (tmp_path / "a.csv").write_text("1,1_1\n2,11\n3,C#\n")
    assert ingest(tmp_path / "a", tmp_path / "a.csv").classes.tolist() == ["11", "1_1", "C#"]
    np.save(tmp_path / "X.npy", np.eye(3))
    (tmp_path / "y.txt").write_text("C#\nC\nnew york\n")
    data = ingest(tmp_path / "b", tmp_path / "X.npy", tmp_path / "y.txt")
    assert data.classes.tolist() == ["C", "C#", "new york"]
    with pytest.raises(ValueError, match="row 1, column label: the label is missing"):
        ingest(tmp_path / "c", np.eye(2), np.array(["a", None], object))


KINDS = [("f2", "f4"), (">f4", "<f4"), (">i2", "<i2"), ("?", "u1")]


def test_types_that_are_converted_and_matrices_that_are_refused(tmp_path, rng):
    y = np.arange(4) % 2
    for number, (kind, stored) in enumerate(KINDS):
        X = rng.integers(0, 2, (4, 3)).astype(kind)
        np.save(tmp_path / f"{number}.npy", X)
        data = ingest(tmp_path / str(number), tmp_path / f"{number}.npy", y)
        assert data.dtype == np.dtype(stored)
        same(data, X.astype(stored), y)
    X = sp.random(4, 6, 0.5, format="csc", random_state=0)
    sp.save_npz(tmp_path / "csc.npz", X)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(ValueError, match="has the format csc, not csr"):
        ingest(tmp_path / "csc", tmp_path / "csc.npz", tmp_path / "y.npy")
    same(ingest(tmp_path / "coo", X.tocoo(), y), X.toarray(), y)


def test_several_entries_of_a_feature_count_together(tmp_path, rng):
    rows = np.repeat(np.arange(60), 4)
    columns = np.tile([3, 1, 3, 0], 60)
    twice = sp.csr_matrix((rng.random(240), columns, np.arange(0, 241, 4)), shape=(60, 200))
    once = sp.coo_matrix((twice.data, (rows, columns)), shape=(60, 200)).tocsr()
    assert once.nnz < twice.nnz
    y = np.asarray(once[:, 3].todense()).ravel() > 1
    assert np.array_equal(LaSVC(random_state=0).fit(twice, y).dual_coef_, LaSVC(random_state=0).fit(once, y).dual_coef_)
    assert not twice.has_canonical_format  # what was given is left as it was
    same(ingest(tmp_path / "d", twice, y), once.toarray(), y)


def test_parquet_parts_indices_and_lists_of_other_lengths(tmp_path):
    (tmp_path / "parts").mkdir()
    pd.DataFrame({"a": [1, 2], "y": [0, 1]}).to_parquet(tmp_path / "parts/0.parquet")
    pd.DataFrame({"a": [0.5, 1.5], "y": [1, 0]}, index=[7, 3]).to_parquet(tmp_path / "parts/1.parquet")
    data = Dataset.create(tmp_path / "d", tmp_path / "parts", format="parquet", shuffle=False)
    assert data.names == ["a"]
    assert data.rows(np.arange(4)).ravel().tolist() == [1, 2, 0.5, 1.5]
    pd.DataFrame({"b": [0.5], "y": [1]}).to_parquet(tmp_path / "parts/2.parquet")
    with pytest.raises(ValueError, match=r"2\.parquet has no column 'a'"):
        Dataset.create(tmp_path / "e", tmp_path / "parts", format="parquet")
    kinds = pd.Series(["u", "v", "u"], dtype="category")
    pd.DataFrame({"a": [1, 2, 3], "y": kinds}).to_parquet(tmp_path / "kinds.parquet")
    assert ingest(tmp_path / "f", tmp_path / "kinds.parquet").classes.tolist() == ["u", "v"]
    pq.write_table(pa.table({"e": [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0]], "y": [0, 1]}), tmp_path / "lists.parquet")
    with pytest.raises(ValueError, match="row 1, column e: the list has 4 values, expected 2"):
        ingest(tmp_path / "g", tmp_path / "lists.parquet")


def test_frames_of_mixed_types(tmp_path):
    frame = pd.DataFrame({"a": [True, False], "b": pd.array([1, 2], "Int64"), "c": [0.5, 1.5]})
    data = Dataset.create(tmp_path / "d", frame, [0, 1], shuffle=False)
    assert data.rows(np.arange(2)).tolist() == [[1, 1, 0.5], [0, 2, 1.5]]
    with pytest.raises(ValueError, match="column t is not numeric"):
        ingest(tmp_path / "e", frame.assign(t=["u", "v"]), [0, 1])
    with pytest.raises(ValueError, match="row 1, column b: the value is missing"):
        ingest(tmp_path / "f", frame.assign(b=pd.array([1, None], "Int64")), [0, 1])


def test_lazy_blocks_that_are_not_what_they_were_said_to_be(tmp_path):
    whole = da.map_blocks(lambda: np.ones((5, 2)), chunks=((5,), (2,)), dtype=float, meta=np.empty((0, 2)))
    other = da.map_blocks(lambda: np.ones((5, 2), int), chunks=((5,), (2,)), dtype=float, meta=np.empty((0, 2)))
    with pytest.raises(ValueError, match="row 5: got 5 rows of int64 x 2 with 5 labels, expected float64 x 2"):
        ingest(tmp_path / "d", da.concatenate([whole, other]), np.arange(10) % 2)


def test_plain_columns_of_anndata(tmp_path, rng):
    store = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    X = rng.normal(size=(50, 3))
    store.create_array("X", data=X)
    obs = store.create_group("obs")
    y = rng.integers(0, 2, 50)
    obs.create_array("y", data=y)
    obs.create_group("nullable").attrs["encoding-type"] = "nullable-integer"
    same(ingest(tmp_path / "d", tmp_path / "a.zarr", "y"), X, y)
    with pytest.raises(ValueError, match="column nullable of obs is a nullable-integer"):
        ingest(tmp_path / "e", tmp_path / "a.zarr", "nullable")


def test_more_than_256_classes(tmp_path):
    with pytest.raises(ValueError, match="row 256, column label: 256 would be one more than 256 classes"):
        Dataset.create(tmp_path / "d", np.zeros((300, 1)), np.arange(300))


def test_ingest_and_info_tell(tmp_path, table):
    X, y = table
    write_csv(tmp_path / "a.csv", X, y, names=["a", "b", "c", "d", "e", "class"])
    run = CliRunner().invoke
    path = str(tmp_path / "d.zarr")
    result = run(main, ["ingest", str(tmp_path / "a.csv"), path, "--scale", "standard", "--workers", "0"])
    assert result.exit_code == 0, result.output
    told = run(main, ["info", path]).output
    for part in ("300 x 5 float32", "a.csv", f"{np.sum(y == 'no')} no", "shuffled", "affine", "a, b, c, d, e"):
        assert part in told
        assert part in result.output
    model = LaSVC(C=2, gamma=0.1, random_state=0).fit(path)
    model.model_.save(tmp_path / "model")
    told = run(main, ["info", str(tmp_path / "model")]).output
    for part in ("rbf gamma=0.1", f"{model.n_support_.sum()} with 5 features", "no, yes", "affine"):
        assert part in told


@pytest.mark.parametrize("scale", ["none", "minmax"])
def test_sparse_data_sets_train_as_matrices_do(tmp_path, rng, scale):
    X = sp.random(300, 300, 0.03, format="csr", random_state=0, dtype=np.float32)
    y = np.asarray(X[:, :100].sum(axis=1)).ravel() > 1.5
    data = Dataset.create(tmp_path / "d", X, y, chunk_rows=40, scale=scale, shuffle=False)
    settings = {"C": 5, "gamma": 0.5, "epochs": "converged", "tol": 1e-3, "random_state": 0}
    model = LaSVC(**settings).fit(data)
    scaled = X.multiply(data.scaling.factor).tocsr().astype(np.float32) if scale == "minmax" else X
    same_rows = LaSVC(**settings).fit(scaled, y)
    assert model.dual_objective_ == pytest.approx(same_rows.dual_objective_, rel=1e-5)
    assert np.allclose(model.decision_function(X), same_rows.decision_function(scaled), atol=0.01)
    assert sp.issparse(model.support_vectors_)
    assert (model.support_vectors_ != X[model.support_]).nnz == 0
    assert np.array_equal(model.predict(data).compute(), model.predict(X))
    with cluster() as client:
        assert np.array_equal(LaSVC(**settings, client=client).fit(data).dual_coef_, model.dual_coef_)
        lazy, labels = data.as_dask()
        remote = LaSVC(**settings, client=client).fit(lazy, labels)
    if scale == "none":
        assert np.array_equal(remote.dual_coef_, model.dual_coef_)


def test_sparse_wide_rows_are_not_made_dense(tmp_path, rng, monkeypatch):
    """A matrix that would take 8 GB as float32 is written, trained on and predicted."""
    columns = np.sort(rng.integers(0, 2_000_000, (1000, 20)), axis=1)
    X = sp.csr_matrix((np.ones(20_000, np.float32), columns.ravel(), np.arange(0, 20_001, 20)), (1000, 2_000_000))
    y = np.asarray(X[:, :1_000_000].sum(axis=1)).ravel() > np.asarray(X[:, 1_000_000:].sum(axis=1)).ravel()
    data = Dataset.create(tmp_path / "d", X, y, shuffle=False)
    monkeypatch.setattr(sp.csr_matrix, "toarray", None)
    model = LaSVC(kernel="linear", random_state=0).fit(data)
    assert model.score(X, y) > 0.9
    assert LaSVC(kernel="linear", random_state=0).fit(X, y).score(X, y) > 0.9


def test_dask_array_blocks_are_read_once(tmp_path):
    reads = []

    def read(block_info=None):
        reads.append(1)
        return np.ones((10, 2))

    X = da.map_blocks(read, chunks=((10,) * 5, (2,)), dtype=float, meta=np.empty((0, 2)))
    Dataset.create(tmp_path / "d", X, np.arange(50) % 2)
    assert len(reads) == 5
