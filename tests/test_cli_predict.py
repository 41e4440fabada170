"""`dasksvm predict`: tables of predictions."""

import csv
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from dasksvm import Dataset, LaSVC
from dasksvm.cli.output import Bars
from dasksvm.model import prediction_files
from dasksvm.model.prediction_files import write
from tests.clusters import cluster
from tests.helpers import blobs
from tests.test_cli import call, told

LABELS = {"text": ("above", "below", "between"), "whole": (-1, 1, 7), "two": ("no", "yes")}


def made(path, labels, shuffle=True, rows=200):
    X, y = blobs(rows)
    y = np.array(labels)[(np.arange(rows) % len(labels)) if len(labels) > 2 else (y > 0).astype(int)]
    X[:, 0] += 2 * np.searchsorted(np.array(labels), y)
    data = Dataset.create(path, X.astype("f4"), y, chunk_rows=90, shuffle=shuffle, random_state=0)
    return data, X.astype("f4"), LaSVC(gamma=0.2, random_state=0).fit(data)


def table(out):
    """Rows, labels and decision values (n, P), and the names of the columns, of whatever was written."""
    if out.suffix == ".zarr":
        group = zarr.open_group(str(out), mode="r")
        labels = np.array(group["label"].attrs["classes"])[group["label"][:]]
        names = [f"decision {name}" for name in group["decision"].attrs["deciders"]]
        return group["row"][:], labels, group["decision"][:], names
    if out.suffix == ".parquet":
        whole = pq.read_table(out)
        values = np.stack([column.to_numpy() for column in whole.columns[2:]], axis=1)
        return whole["row"].to_numpy(), np.array(whole["label"].to_pylist()), values, whole.column_names[2:]
    with out.open(newline="") as file:
        names, *lines = csv.reader(file)
    values = np.array([[float(cell) for cell in line[2:]] for line in lines])
    return np.array([int(line[0]) for line in lines]), np.array([line[1] for line in lines]), values, names[2:]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "zarr"])
@pytest.mark.parametrize("order", ["shuffled", "as it came", "too large to sort"])
def test_predictions_are_those_of_the_model(order, suffix, kind, tmp_path, monkeypatch):
    data, X, fitted = made(tmp_path / "data.zarr", LABELS[kind], order != "as it came")
    monkeypatch.setattr(prediction_files, "SORTED_BYTES", 100 if order == "too large to sort" else 1 << 20)
    fitted.model_.save(tmp_path / "model")
    out = tmp_path / f"out.{suffix}"
    said = told("predict", data.path, tmp_path / "model", out)
    rows, labels, values, names = table(out)
    assert sorted(rows) == list(range(200))
    stored = order == "too large to sort"
    assert said["order"] == ("stored" if stored else "source")
    assert np.array_equal(rows, data.source_rows(np.arange(200)) if stored else np.arange(200))
    assert labels.tolist() == fitted.predict(X)[rows].astype(labels.dtype).tolist()
    expected = fitted.model_.decision_function(data.as_dask()[0]).compute()
    assert np.array_equal(values[np.argsort(rows)], expected[np.argsort(data.source_rows(np.arange(200)))])
    if suffix != "zarr":
        assert names == (["decision"] if kind == "two" else [f"decision {label}" for label in LABELS[kind]])
    assert said["rows"] == 200
    counts = np.unique(fitted.predict(X), return_counts=True)[1]
    assert (said["classes"], said["counts"]) == (list(LABELS[kind]), counts.tolist())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.zarr", "model", f"out.{suffix}"]


def test_workers_write_whole_chunks(tmp_path):
    data, _, fitted = made(tmp_path / "data.zarr", LABELS["two"], shuffle=False, rows=2000)
    object.__setattr__(data, "column_rows", 180)
    shares = []
    with cluster(2):
        write(fitted.model_, data, str(tmp_path / "a.zarr"), threads=2, watch=lambda *told: shares.append(told))
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    assert group["decision"].chunks == (180, 1)
    assert dict(group.attrs) == {"format": "dasksvm-predictions", "version": 1, "data": data.path, "order": "source"}
    assert np.array_equal(group["row"][:], np.arange(2000))
    assert np.array_equal(group["decision"][:], fitted.model_.decision_function(data.as_dask()[0]).compute())
    assert shares == [("predicting", 1440, 0.72), ("predicting", 2000, 1.0)]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "zarr"])
def test_a_table_is_complete_or_absent(suffix, tmp_path, monkeypatch):
    data, _, fitted = made(tmp_path / "data.zarr", LABELS["two"], shuffle=suffix != "zarr")
    fitted.model_.save(tmp_path / "model")
    out = tmp_path / f"out.{suffix}"
    before = sorted(tmp_path.iterdir())

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(prediction_files, "_count", fail)
        result = call("predict", data.path, tmp_path / "model", out)
    assert result.exit_code == 4
    assert f"dasksvm: {out} cannot be written: No space left on device." in result.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert call("predict", data.path, tmp_path / "model", out).exit_code == 0
    result = call("predict", data.path, tmp_path / "model", out)
    assert result.exit_code == 4
    assert f"{out} already exists" in result.stderr


def test_a_name_that_says_no_format_is_a_usage_error(tmp_path):
    data, _, fitted = made(tmp_path / "data.zarr", LABELS["two"])
    fitted.model_.save(tmp_path / "model")
    result = call("predict", data.path, tmp_path / "model", tmp_path / "out.txt")
    assert result.exit_code == 2
    assert ".zarr, .csv, .parquet" in result.stderr


def test_parquet_without_pyarrow_says_what_to_install(tmp_path):
    data, _, fitted = made(tmp_path / "data.zarr", LABELS["two"])
    fitted.model_.save(tmp_path / "model")
    code = "import sys; sys.modules['pyarrow'] = None; from dasksvm.cli.main import main; main()"
    arguments = ["predict", data.path, str(tmp_path / "model"), str(tmp_path / "out.parquet")]
    found = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert found.returncode == 4
    assert "pip install 'dasksvm[parquet]'" in found.stderr


def test_progress_in_lines_where_there_is_no_terminal(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("dasksvm.cli.output.monotonic", lambda: now[0])
    with Bars() as bars:
        for now[0], phase, rows, share in (
            (0.0, "reading", 10, None),
            (4.9, "reading", 20, 0.1),
            (5.0, "reading", 3000, 0.2),
            (5.1, "writing", 40, 0.5),
        ):
            bars(phase, rows, share)
    assert capsys.readouterr().err.splitlines() == [
        "reading 10 rows",
        "reading 3,000 rows, 20%",
        "writing 40 rows, 50%",
    ]
