import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from dasksvm import Dataset, LaSVC, load
from dasksvm.cli import main
from pipelines.compare import measure
from pipelines.rows import environment, write
from pipelines.tasks import Task
from tests.clusters import cluster, noisy
from tests.helpers import blobs


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.cluster
def test_quickstart_trains_on_a_cluster_and_tells():
    result = call("quickstart")
    assert result.exit_code == 0, result.output
    assert "dashboard" in result.stderr
    error = float(result.output.split("test error")[1].split("%")[0])
    assert error < 3.0
    alone = call("quickstart", "--workers", 0)
    assert alone.output.split("kernel values")[1].split("next:")[0] in result.output


def test_train_predict_evaluate(tmp_path: Path):
    X, y = blobs(400)
    labels = np.where(y > 0, "yes", "no")
    data = Dataset.create(tmp_path / "data.zarr", X, labels, chunk_rows=90, random_state=0)
    model, out = tmp_path / "model", tmp_path / "out.csv"
    result = call("train", data.path, model, "--c", 5, "--gamma", 0.1, "--epochs", "converged")
    assert result.exit_code == 0, result.output
    expected = LaSVC(C=5, gamma=0.1, epochs="converged", random_state=0).fit(data)
    assert np.array_equal(load(model).coefficients, expected.dual_coef_)
    result = call("predict", data.path, model, out)
    assert result.exit_code == 0, result.output
    with out.open() as file:
        table = sorted((int(row["row"]), row["label"], float(row["decision"])) for row in csv.DictReader(file))
    assert [row for row, _, _ in table] == list(range(400))
    assert [label for _, label, _ in table] == expected.predict(X).tolist()
    assert np.allclose([value for _, _, value in table], expected.decision_function(X))
    result = call("evaluate", data.path, model)
    wrong = int(np.sum(expected.predict(X) != labels))
    assert f"({wrong} of 400)" in result.output
    positive, values = labels == "yes", expected.decision_function(X)
    assert f"area under ROC    {roc_auc_score(positive, values):.4f}" in result.output
    recalls = recall_score(labels, expected.predict(X), average=None)
    assert f"g-means           {np.sqrt(recalls.prod()):.2%}" in result.output
    # At the break-even point as many are called positive as are.
    called = np.zeros(400, bool)
    called[np.argsort(-values)[: positive.sum()]] = True
    assert f"break-even        {precision_score(positive, called):.2%}" in result.output


def test_errors_are_one_line(tmp_path: Path):
    X, y = blobs(60)
    data = Dataset.create(tmp_path / "data.zarr", X, y)
    other = Dataset.create(tmp_path / "other.zarr", X, y + 5)
    LaSVC().fit(data).model_.save(tmp_path / "model")
    (tmp_path / "text").write_text("no model")
    cases = [
        (("train", tmp_path, tmp_path / "m"), "no data set"),
        (("train", data.path, tmp_path / "absent" / "m"), "folder does not exist"),
        (("train", data.path, tmp_path / "m", "--c", -1), "'C' parameter"),
        (("predict", data.path, tmp_path / "text", tmp_path / "o.csv"), "is no model"),
        (("evaluate", other.path, tmp_path / "model"), "does not know"),
    ]
    for arguments, message in cases:
        result = call(*arguments)
        assert result.exit_code == 4, result.output
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        with pytest.raises((ValueError, OSError), match=message):
            CliRunner().invoke(main, ["--traceback", *map(str, arguments)], catch_exceptions=False)
    for arguments in (("--gamma", "big"), ("--workers", 1, "--scheduler", "tcp://there")):
        assert call("train", data.path, tmp_path / "m", *arguments).exit_code == 2


@pytest.mark.cluster
def test_running_cluster_by_address_and_by_file(tmp_path: Path):
    data = noisy(tmp_path / "data.zarr", rows=1500)
    with cluster(1, processes=True) as client:
        file = tmp_path / "scheduler.json"
        client.write_scheduler_file(str(file))
        for option in (("--scheduler", client.scheduler.address), ("--scheduler-file", file)):
            result = call("train", data.path, tmp_path / "model", *option)
            assert result.exit_code == 0, result.output + result.stderr
            result = call("evaluate", data.path, tmp_path / "model", *option)
            assert result.exit_code == 0, result.output + result.stderr
    assert np.array_equal(load(tmp_path / "model").coefficients, LaSVC(random_state=0).fit(data).dual_coef_)


def test_module_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "dasksvm", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in done.stdout


def test_a_comparison_is_a_json_row(tmp_path: Path):
    X, y = blobs(300)
    task = Task("small", X.astype(np.float32), y, X.astype(np.float32), y, {"C": 1.0, "gamma": 0.1})
    for solver in ("lasvc", "sklearn"):
        write(tmp_path / "deep" / "rows.jsonl", measure(solver, task, 10, 0) | environment())
    rows = [json.loads(line) for line in (tmp_path / "deep" / "rows.jsonl").read_text().splitlines()]
    assert [row["solver"] for row in rows] == ["lasvc", "sklearn"]
    assert rows[0]["dual"] <= rows[1]["dual"] * (1 + 1e-4)
    assert all(row["seconds"] > 0 and row["peak_mb"] > 0 and row["cores"] >= 1 for row in rows)
