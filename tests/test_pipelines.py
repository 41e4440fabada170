"""Pipelines on small data: that a row comes out, with the figures of what was trained."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pipelines import decomposition, multiclass, robust
from pipelines.decomposition_paper import read
from pipelines.tasks import Task
from tests.helpers import blobs

pytestmark = pytest.mark.slow


def row(main, *arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


@pytest.mark.parametrize("variant", ["S2DO_ALL", "batch"])
def test_curves_of_machines(variant):
    found = row(multiclass.main, "curves", "--task", "digits-300", "--machine", "cs", "--one", variant)
    assert found["error_percent"] < 20
    assert found["dual"] > 0
    assert any("error" in entry for entry in found["curve"])


@pytest.mark.parametrize("of", ["nc", "lasvm"])
def test_robust_solvers_watched_and_not(of, monkeypatch):
    X, y = blobs(700, d=3, shift=1.0)
    X = X.astype(np.float32)
    task = Task("banana", X[:500], y[:500], X[500:], y[500:], {"C": 10.0, "gamma": 0.3})
    monkeypatch.setattr(robust, "task_of", lambda name, seed, data: task)
    plain, watched = (row(robust.main, "fit", "--solver", of, *more) for more in ((), ("--watch",)))
    assert plain["accuracy"] == watched["accuracy"] > 70
    assert plain["support_vectors"] == watched["support_vectors"]
    assert {"break_even", "support_vectors", "seen"} <= set(watched["curve"][-1])
    seen = [step["seen"] for step in watched["steps"]]
    assert seen == sorted(seen)


@pytest.fixture
def pairs(monkeypatch, tmp_path):
    """Run a command of `pipelines.decomposition` on a small task; give its output and the rows that it wrote."""
    X, y = blobs(160, d=3, shift=0.4)
    task = Task("mnist-04", X.astype(np.float32), y, X, y, {"C": 1.0, "gamma": 0.3})
    monkeypatch.setattr(decomposition, "load", lambda name, data: task)
    out = tmp_path / "rows.jsonl"

    def run(command, *arguments):
        words = [command, *arguments, "--out", out]
        result = CliRunner().invoke(decomposition.main, [str(word) for word in words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output, read(out)

    return run


def test_selections_of_pairs_come_to_the_same_dual(pairs):
    output, rows = pairs("table", "--orders", 5, "--selections", "mvp,second-order,hmg")
    assert len(rows) == 15
    assert all(row["converged"] and row["delta"] < 2e-3 and row["cache_rows"] == 16 for row in rows)
    assert np.ptp([row["dual"] for row in rows]) < 1e-3 * rows[0]["dual"]
    assert all(row["missed"] <= 2 * row["iterations"] for row in rows)
    assert output.count("p = ") == 6
    assert output.count("the paper's") == 3
    output, rows = pairs("table", "--orders", 1, "--selections", "hmg,mg", "--stop", "gain", "--no-shrinking")
    assert {row["stop"] for row in rows[15:]} == {"gain"}
    assert "187653" not in output
    assert "155182" in output


def test_caches_and_searched_rows_and_grids_are_told_and_drawn(pairs, tmp_path):
    _, rows = pairs("cache", "--orders", 1, "--selections", "second-order,hmg", "--shares", "0.1,1")
    assert [row["cache_rows"] for row in rows] == [16, 16, 24, 24]
    output, rows = pairs("rows", "--orders", 1, "--max-iter", 400)
    assert [row["searched"] for row in rows[4:]] == [2, 1, 0]
    assert "of the steps saved" in output
    output, rows = pairs("grid", "--orders", 1, "--selections", "mvp,hmg", "--points", 3, "--max-iter", 400)
    grid = [row for row in rows if row["study"] == "grid"]
    assert len(grid) == 18
    assert grid[-1]["parameters"]["C"] == pytest.approx(1e4 * grid[0]["parameters"]["C"])
    assert output.count("steps") >= 18
    printed, _ = pairs("report")
    assert "cache mnist-04" in printed
    drawn, _ = pairs("plot", "--folder", tmp_path)
    assert [(tmp_path / name).exists() for name in drawn.split()] == [True, True]


def test_blocks_are_measured_beside_libsvm(pairs):
    _, rows = pairs(
        "blocks", "--orders", 1, "--selections", "hmg", "--sizes", "16,256", "--dtype", "float64", "--cost", 2.0
    )
    assert {row["parameters"]["C"] for row in rows} == {2.0}
    assert [row["working_set_size"] for row in rows] == [16, 256]
    assert all(abs(row["short"]) < 1e-4 for row in rows)
