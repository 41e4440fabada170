"""Data sets without labels, and asking a person for some."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from dasksvm import Dataset, HeldOut, LaSVC, load
from dasksvm.cli.main import main
from dasksvm.data.ingest import group_writer
from tests.test_active import rows


def call(*arguments, said=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=said)


def without_labels(kind, path, X):
    """Write rows to a file, and what ingest has to be told."""
    if kind == "csv":
        path = path.with_suffix(".csv")
        np.savetxt(path, X, delimiter=",", header="a,b,c,y", comments="", fmt="%.9g")
    elif kind == "svmlight":
        path = path.with_suffix(".svm")
        path.write_text("".join("0 " + " ".join(f"{at + 1}:{v:.9g}" for at, v in enumerate(row)) + "\n" for row in X))
    elif kind == "npy":
        path = path.with_suffix(".npy")
        np.save(path, X)
    elif kind == "npz":
        path = path.with_suffix(".npz")
        np.savez(path, X=X)
    elif kind == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        path = path.with_suffix(".parquet")
        pandas.DataFrame(X, columns=["a", "b", "c", "y"]).to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "svmlight", "npy", "npz", "parquet"])
def test_files_without_labels(kind, tmp_path):
    X, _ = rows(60)
    file = without_labels(kind, tmp_path / "rows", X)
    result = call("ingest", file, tmp_path / "pool.zarr", "--no-label")
    assert result.exit_code == 0, result.output
    assert "none: the rows have no labels" in result.output
    data = Dataset.open(tmp_path / "pool.zarr")
    assert data.shape == (60, 4)
    found = data.rows(np.arange(60))
    found = found.toarray() if sp.issparse(found) else found
    assert np.allclose(found, X[data.source_rows(np.arange(60))], atol=1e-6)
    assert not (tmp_path / "pool.zarr" / "y").exists()


def test_arrays_and_frames_without_labels(tmp_path):
    X, _ = rows(50)
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    given = {"array": X, "csr": sp.csr_matrix(X), "frame": pandas.DataFrame(X)}
    given["array on Dask"] = da.from_array(X, chunks=20)
    given["lazy"] = frames.from_pandas(pandas.DataFrame(X, columns=list("abcd")), npartitions=3)
    given["numbered columns"] = frames.from_pandas(pandas.DataFrame(X), npartitions=2)
    for name, source in given.items():
        data = Dataset.create(tmp_path / name, source, False, random_state=0)
        assert data.shape == (50, 4)
        assert not data.labelled
        assert data.as_dask()[1] is None
        assert sorted(data.ids_of(np.arange(50)).tolist()) == list(range(50))
        assert data.ids_of([50, -1]).tolist() == [-1, -1]


def test_lines_that_begin_with_a_value_are_not_taken_for_lines_with_a_label(tmp_path):
    (tmp_path / "rows.svm").write_text("0 1:1 2:1\n1:0.5 2:1.0\n")
    with pytest.raises(ValueError, match=r"row 1: '1:0\.5' stands where a label is expected"):
        Dataset.create(tmp_path / "pool.zarr", tmp_path / "rows.svm", False)


def test_source_rows_are_found_across_chunks_of_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(group_writer, "COLUMN_ROWS", 64)
    data = Dataset.create(tmp_path / "pool.zarr", rows(300)[0], False, chunk_rows=30, random_state=0)
    assert data.column_rows < 100
    wanted = np.random.default_rng(0).permutation(300)[:50]
    assert np.array_equal(data.source_rows(data.ids_of(wanted)), wanted)


def test_what_needs_labels_says_so(tmp_path):
    X, y = rows(80)
    data = Dataset.create(tmp_path / "pool.zarr", X, False)
    model = LaSVC().fit(X, y)
    for needs in (
        lambda: LaSVC().fit(data),
        lambda: model.score(data),
        lambda: HeldOut(data),
        lambda: data.labels([0]),
        lambda: model.duality_gap(data),
    ):
        with pytest.raises(ValueError, match="has no labels"):
            needs()
    assert len(np.asarray(model.predict(data))) == 80
    model.model_.save(tmp_path / "model")
    assert "has no labels" in call("evaluate", data.path, tmp_path / "model").output
    assert call("ingest", "x", "y", "--label", 1, "--no-label").exit_code == 2


@pytest.fixture
def pool(tmp_path):
    X, y = rows(400)
    return Dataset.create(tmp_path / "pool.zarr", X, False, random_state=0), X, y


def asked(result):
    """The row of the last question of a session."""
    return int(result.output.split("\nrow ")[-1].split(" ")[0])


def test_a_session_is_left_and_resumed(pool, tmp_path):
    data, X, y = pool
    labels, model = tmp_path / "labels.csv", tmp_path / "model"
    session = ("label", data.path, labels, "--first", 3, "--c", 10, "--model", model)
    for count in range(25):
        row = asked(call(*session, said="q\n"))
        result = call(*session, said=f"{y[row]}\n")
        assert result.exit_code == 0, result.output
        told = [line.split(",") for line in labels.read_text().splitlines()[1:]]
        assert told[-1] == [str(row), y[row]]
        assert len({row for row, _ in told}) == count + 1
    assert "learned 25 labels" in call(*session, said="q\n").output
    assert np.mean(load(model).predict(X) == y) > 0.7


def test_a_row_can_be_passed_over(pool, tmp_path):
    labels = tmp_path / "labels.csv"
    first = asked(call("label", pool[0].path, labels, said="q\n"))
    assert asked(call("label", pool[0].path, labels, said="?\nq\n")) != first
    assert not labels.exists()


def test_only_two_labels_are_taken(pool, tmp_path):
    data, _, _ = pool
    labels = tmp_path / "labels.csv"
    result = call("label", data.path, labels, said="1\n-1\nmaybe\n1.0\n")
    assert "'maybe' is not one of the two labels so far: -1/1" in result.output
    assert [line.split(",")[1] for line in labels.read_text().splitlines()] == ["label", "1", "-1", "1"]
    assert "3 labels (1 -1, 2 1)" in result.output
    assert "no model yet" in call("label", data.path, labels, "--model", tmp_path / "m", said="q\n").output


def test_answers_that_are_no_labels_are_asked_again_and_torn_files_go_on(pool, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("row,label\n4,no")
    result = call("label", pool[0].path, labels, said="0.5\nnan\nyes\nq\n")
    assert result.exit_code == 0, result.output
    assert "0.5 is not a class label" in result.output
    assert [line.split(",")[1] for line in labels.read_text().splitlines()] == ["label", "no", "yes"]
    labels.write_text("row,label\n1,a\n2,b\n3,c\n")
    assert f"{labels}: labels must be of two classes" in call("label", pool[0].path, labels, said="q\n").output
    assert "cannot be written" in call("label", pool[0].path, labels, "--model", tmp_path / "none" / "m").output


def test_a_pool_of_more_than_two_classes_is_refused_before_anything_is_asked(tmp_path):
    X, _ = rows(30)
    data = Dataset.create(tmp_path / "pool.zarr", X, np.arange(30) % 3)
    result = call("label", data.path, tmp_path / "labels.csv", said="1\nq\n")
    assert result.exit_code == 4
    assert f"a pool of two classes; {data.path} has [0, 1, 2]" in result.output
    assert "enter a label" not in result.output
    assert not (tmp_path / "labels.csv").exists()


def test_a_sparse_row_shows_its_largest_values(tmp_path):
    X = sp.csr_matrix(np.diag(np.arange(1.0, 31)))
    data = Dataset.create(tmp_path / "pool.zarr", X, False, shuffle=False)
    result = call("label", data.path, tmp_path / "labels.csv", said="q\n")
    row = int(result.output.split("\nrow ")[1].split(" ")[0])
    assert f"[{row}] {row + 1}" in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "does not begin with row,label"),
        ("row,label\n1,yes\n1,no\n", "line 3"),
        ("row,label\n1,yes\n\n7\n", "line 4"),
        ("row,label\n400,yes\n", "has no row 400"),
        ("row,label\n4,\n", "line 2: the label is missing"),
    ],
)
def test_files_of_labels_that_are_wrong(pool, tmp_path, text, message):
    labels = tmp_path / "labels.csv"
    labels.write_text(text)
    result = call("label", pool[0].path, labels, said="q\n")
    assert result.exit_code == 4
    assert message in result.output
    assert labels.read_text() == text
