"""`dasksvm submit`, `status`, `attach`, `cancel` and `fetch`."""

import json

import numpy as np
import pytest

import dasksvm
from dasksvm import load, train
from tests.clusters import cluster, left_over, noisy, solver
from tests.test_cli import call

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=1500)


@pytest.fixture(scope="module")
def client():
    with cluster(1, processes=True) as client:
        yield client


@pytest.fixture
def on(client):
    return ("--scheduler", client.scheduler.address)


def test_the_life_of_a_job(client, on, data, tmp_path):
    submitted = call("submit", data.path, "--c", 3, "--seed", 1, "--name", "noisy", *on)
    assert submitted.exit_code == 0, submitted.output
    id = submitted.stdout.strip()
    assert id.startswith("noisy-")
    followed = call("attach", id, *on)
    assert followed.exit_code == 0, followed.output
    assert "kept" in followed.stderr
    assert f"{id:20} done" in followed.stdout
    assert call("status", *on).stdout == call("status", id, *on).stdout == followed.stdout
    assert [job["id"] for job in json.loads(call("status", "--json", *on).stdout)["jobs"]] == [id]
    told = json.loads(call("status", id, "--json", *on).stdout)
    assert (told["state"], told["about"]["parameters"]["C"]) == ("done", 3.0)
    fetched = call("fetch", id, tmp_path / "model", *on)
    assert fetched.exit_code == 0, fetched.output
    assert np.array_equal(load(tmp_path / "model").coefficients, train(data, solver()).model.coefficients)
    assert call("cancel", id, *on).stdout == f"removed {id}\n"
    assert call("status", *on).stdout == "no jobs\n"
    assert left_over(client) == ([], {(0, 0)})


def test_exit_codes(client, on, data, tmp_path):
    early = json.loads(call("submit", data.path, "--max-examples", 300, "--json", *on).stdout)["id"]
    followed = call("attach", early, "--quiet", "--json", *on)
    assert (followed.exit_code, json.loads(followed.stdout)["state"]) == (3, "stopped")
    failed = dasksvm.submit(tmp_path / "nothing.zarr", solver(), client=client)
    followed = call("attach", failed.id, "--quiet", *on)
    assert followed.exit_code == 4
    assert "is not a data set" in followed.stdout
    fetched = call("fetch", failed.id, tmp_path / "model", *on)
    assert fetched.exit_code == 4
    assert "is not a data set" in fetched.stderr
    assert not (tmp_path / "model").exists()
    for command in (
        ("attach", "nobody"),
        ("status", "nobody"),
        ("cancel", "no/body"),
        ("fetch", "nobody", tmp_path / "m"),
    ):
        result = call(*command, *on)
        assert result.exit_code == 4
        assert "job" in result.stderr


def test_interrupted_it_detaches(client, on, data, monkeypatch):
    id = call("submit", data.path, *on).stdout.strip()

    def interrupt(seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dasksvm.runtime.jobs.job.sleep", interrupt)
        followed = call("attach", id, *on)
    assert followed.exit_code == 130
    assert f"detached: the job {id} continues" in followed.stderr
    assert call("attach", id, "-q", *on).exit_code == 0


def test_usage(data, tmp_path):
    for command in (
        ("submit", data.path),
        ("status",),
        ("attach", "x"),
        ("cancel", "x"),
        ("fetch", "x", tmp_path / "m"),
    ):
        result = call(*command)
        assert result.exit_code == 2
        assert "--scheduler" in result.stderr
    for options in (("--resume",), ("--name", "a b")):
        assert call("submit", data.path, *options, "--scheduler", "tcp://nowhere:1").exit_code == 2
