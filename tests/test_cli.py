import csv
import json
import os
import signal
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from dasksvm import Dataset, LaSVC, load
from dasksvm.cli.main import main
from dasksvm.cli.output import echo_json
from pipelines.compare import measure
from pipelines.rows import environment, write
from pipelines.tasks import Task
from tests.clusters import cluster, noisy
from tests.helpers import blobs

ROOT = Path(__file__).parent.parent


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def told(*arguments: object) -> dict[str, Any]:
    """What a command says to a program: standard output has nothing else."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


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
    assert "evaluating 400 rows, 100%" in result.stderr
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
        (("train", tmp_path, tmp_path / "m"), "not a data set"),
        (("train", data.path, tmp_path / "absent" / "m"), "folder does not exist"),
        (("predict", data.path, tmp_path / "text", tmp_path / "o.csv"), "is not a valid"),
        (("predict", data.path, tmp_path / "model", tmp_path / "absent" / "o.csv"), "folder does not exist"),
        (("evaluate", other.path, tmp_path / "model"), "does not know"),
    ]
    for arguments, message in cases:
        result = call(*arguments)
        assert result.exit_code == 4, result.output
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        for wordy in (("-v", *arguments), (*arguments, "--verbose")):
            result = call(*wordy)
            assert result.exit_code == 4
            assert result.stderr.startswith("Traceback")
            assert message in result.stderr.splitlines()[-1]
    result = call("train", data.path, tmp_path / "m", "--workers", 1, "--scheduler", "tcp://there")
    assert result.exit_code == 2
    assert "only one of" in result.stderr


class Foreign(Exception):
    """As Dask raises them: not of the kinds that are expected of everybody."""


Foreign.__module__ = "distributed.scheduler"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "out of memory"),
        (MemoryError("Unable to allocate 3 TiB"), "out of memory: Unable to allocate 3 TiB"),
        (TimeoutError(), "TimeoutError"),
        (OSError("Timed out trying\nto connect"), "Timed out trying to connect"),
        (Foreign("gone"), "Foreign: gone"),
        (KeyError("x"), "KeyError: 'x' (this is a bug in dasksvm; -v shows the traceback)"),
    ],
    ids=repr,
)
def test_whatever_is_raised_is_one_line(error, told, tmp_path, monkeypatch):
    def fail(path):
        raise error

    (tmp_path / "model").write_text("")
    monkeypatch.setattr("dasksvm.model.native.load", fail)
    result = call("info", tmp_path / "model")
    assert (result.exit_code, result.stderr) == (4, f"dasksvm: {told}\n")


def test_warnings_are_one_line(tmp_path, monkeypatch):
    def warn(path):
        with warnings.catch_warnings(action="default"):
            warnings.showwarning("the model\nis old", UserWarning, "file.py", 3)
        raise KeyboardInterrupt

    (tmp_path / "model").write_text("")
    monkeypatch.setattr("dasksvm.model.native.load", warn)
    result = call("info", tmp_path / "model")
    assert result.exit_code == 130
    assert result.stderr == "dasksvm: warning: the model is old\ndasksvm: interrupted\n"


def test_an_interrupt_ends_a_training_quietly(tmp_path):
    data = noisy(tmp_path / "data.zarr", rows=20_000)
    command = [sys.executable, "-m", "dasksvm", "train", data.path, str(tmp_path / "model"), "--epochs", "1000"]

    def listening():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listening) as found:
        assert "online" in found.stderr.readline()
        found.send_signal(signal.SIGINT)
        assert found.stderr.read().splitlines()[-1] == "dasksvm: interrupted"
    assert found.returncode == 130
    assert not (tmp_path / "model").exists()


def test_a_reader_that_leaves_is_not_told_of(tmp_path):
    X, y = blobs(60)
    data = Dataset.create(tmp_path / "data.zarr", X, y)
    command = [sys.executable, "-m", "dasksvm", "info", data.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as found:
        found.stdout.close()
        assert found.stderr.read() == ""
    assert found.returncode == 1


def test_dask_finds_the_commands(tmp_path):
    about = tmp_path / "dasksvm-0.0.dist-info"
    about.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["dask_cli"].items())
    (about / "entry_points.txt").write_text(f"[dask_cli]\n{points}")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dasksvm\nVersion: 0.0\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    for arguments, told in ((["--version"], "dasksvm, version "), (["train", "--help"], "dask svm train")):
        found = subprocess.run(
            [sys.executable, "-m", "dask", "svm", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert told in found.stdout


def test_help_loads_nothing_that_is_slow():
    code = (
        "import sys, dasksvm.cli.main; print(sorted({'numpy', 'numba', 'dask', 'sklearn', 'zarr'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_facts_are_one_json_object(tmp_path):
    X, y = blobs(300)
    np.savez(tmp_path / "rows.npz", X=X, y=np.where(y > 0, "yes", "no"))
    path, model = tmp_path / "data.zarr", tmp_path / "model"
    made = told("ingest", tmp_path / "rows.npz", path)
    seconds = made.pop("seconds")
    assert seconds > 0
    assert made == told("info", path)
    assert (made["rows"], made["features"], made["classes"]) == (300, 5, ["no", "yes"])
    assert sum(made["class_counts"]) == 300
    run = told("train", path, model, "-c", 5, "--epochs", "converged", "-w", "yes", 2)
    fitted = LaSVC(C=5, epochs="converged", class_weight={"yes": 2.0}, random_state=0).fit(Dataset.open(path))
    assert run["dual_objective"] == fitted.dual_objective_
    assert run["support_vectors_by_class"] == fitted.n_support_.tolist()
    assert (run["solver"], run["model"], run["stopped"], run["classes"]) == ("lasvc", str(model), False, ["no", "yes"])
    assert run["parameters"]["class_weight"] == {"yes": 2.0}
    for name, attribute in (("kernel_evaluations", "kernel_evaluations_"), ("steps", "n_iter_")):
        assert run[name] == getattr(fitted, attribute)
    assert run["seen"] == fitted.history_[-1]["seen"]
    assert run["timings"]["seconds"] <= run["seconds"]
    about = told("info", model)
    assert about["support_vectors"] == run["support_vectors"] == len(fitted.support_)
    assert about["intercepts"] == fitted.intercept_.tolist()
    judged = told("evaluate", path, model)
    wrong = int(np.sum(fitted.predict(Dataset.open(path)).compute() != Dataset.open(path).labels(np.arange(300))))
    assert (judged["wrong"], judged["rows"], judged["error"]) == (wrong, 300, wrong / 300)
    assert np.sum(judged["confusion"]) == 300
    assert judged["auc"] > 0.8
    assert 0 < judged["g_means"] < 1


def test_numbers_that_json_does_not_have_are_null(capsys):
    echo_json({"a": np.array([1.0, np.nan]), "b": {1: np.inf}, "c": "δ"})
    assert json.loads(capsys.readouterr().out) == {"a": [1.0, None], "b": {"1": None}, "c": "δ"}


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
    assert "0.2.0" in done.stdout


def test_a_comparison_is_a_json_row(tmp_path: Path):
    X, y = blobs(300)
    task = Task("small", X.astype(np.float32), y, X.astype(np.float32), y, {"C": 1.0, "gamma": 0.1})
    for solver in ("lasvc", "sklearn"):
        write(tmp_path / "deep" / "rows.jsonl", measure(solver, task, 10, 0) | environment())
    rows = [json.loads(line) for line in (tmp_path / "deep" / "rows.jsonl").read_text().splitlines()]
    assert [row["solver"] for row in rows] == ["lasvc", "sklearn"]
    assert rows[0]["dual"] <= rows[1]["dual"] * (1 + 1e-4)
    assert all(row["seconds"] > 0 and row["peak_mb"] > 0 and row["cores"] >= 1 for row in rows)
