"""Jobs: trainings that run on a cluster by themselves."""

import json
import threading

import dask.config
import numpy as np
import pytest
from distributed import Client, Future, Variable

import dasksvm
from dasksvm import LaSVC, train
from dasksvm.cli.output import print_job
from dasksvm.runtime import JobCancelled, JobLost, UnknownJob, placement, workers_of
from dasksvm.runtime.coordinator import Coordinator
from dasksvm.training.snapshots import AnotherRun
from tests.clusters import cluster, left_over, noisy, same, solver, wait_for


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=1500)


@pytest.fixture(scope="module")
def expected(data):
    return train(data, solver()).model


@pytest.fixture(scope="module")
def client():
    with cluster(2) as client:
        yield client


def slow(monkeypatch, seconds):
    """Make every result take so long, until the event is set, so that there is time to do something to a run."""
    from dasksvm.solver.lasvm.learner import TwoClassLearner

    take, go_on = TwoClassLearner.take, threading.Event()

    def late(self, result):
        progress = take(self, result)
        go_on.wait(seconds)
        return progress

    monkeypatch.setattr(TwoClassLearner, "take", late)
    return go_on


def test_a_job_from_submission_to_oblivion(client, data, expected):
    job = dasksvm.submit(data, solver(), client=client, name="noisy")
    assert job.id.startswith("noisy-")
    seen = []
    status = job.attach([lambda progress, seconds: bool(seen.append((progress.phase, progress.seen)))])
    assert status.state == job.status().state == "done"
    assert seen[-1] == ("done", 1500)
    assert status.about["data"] == data.path
    assert status.about["parameters"]["C"] == 3.0
    assert status.about["examples"] == 1500
    assert status.progress["members"] > 0
    json.dumps(vars(status))
    assert same(job.fetch(), expected)
    assert same(dasksvm.Job(job.id, client.scheduler.address).fetch(), expected)
    assert [other.id for other in dasksvm.jobs(client)] == [job.id]
    job.cancel()
    assert dasksvm.jobs(client) == []
    assert not client.get_events(f"dasksvm-job-{job.id}")
    for asked in (job.status, job.attach, job.cancel, job.fetch):
        with pytest.raises(UnknownJob, match=f"no job {job.id}"):
            asked()
    assert left_over(client) == ([], {(0, 0)})


def test_attached_twice_to_a_running_job_without_gaps_or_doubles(client, data, monkeypatch):
    slow(monkeypatch, 0.05)
    job = dasksvm.submit(str(data.path), solver(), client=client)
    both = [], []

    def attach(seen):
        job.attach([lambda progress, seconds: bool(seen.append((progress.steps, seconds)))])

    first = threading.Thread(target=attach, args=(both[0],))
    first.start()
    wait_for(lambda: both[0])
    assert job.status().state == "running"
    attach(both[1])
    first.join()
    assert both[0] == both[1]
    steps = [steps for steps, _ in both[0]]
    assert steps == sorted(steps)
    assert len(steps) > 2
    job.cancel()


def test_a_watcher_detaches_and_the_job_goes_on(client, data, expected):
    job = dasksvm.submit(data, solver(), client=client)
    job.attach([lambda progress, seconds: True])
    assert same(job.fetch(), expected)
    job.cancel()


def test_lines_are_shown_if_nothing_else_is_asked_for(client, data, capsys):
    job = dasksvm.submit(data, solver(), client=client)
    job.attach()
    assert "kept" in capsys.readouterr().err
    job.cancel()


def test_warnings_of_a_job_are_told_where_one_asks(client, data, expected, monkeypatch, capsys):
    advance, calls = Coordinator.advance, []

    def failing(self, turn):
        calls.append(turn.number)
        if len(calls) == 1:
            raise OSError("gone for a test")
        return advance(self, turn)

    monkeypatch.setattr(Coordinator, "advance", failing)
    job = dasksvm.submit(data, solver(), client=client)
    status = job.attach()
    assert [
        text for text in status.warnings if "starts another one: OSError: gone for a test" in text
    ] == status.warnings
    assert len(status.warnings) == 1
    assert "gone for a test" in capsys.readouterr().err
    print_job(status)
    assert "gone for a test" in capsys.readouterr().out
    assert same(job.fetch(), expected)
    job.cancel()


def test_jobs_side_by_side(client, data, expected):
    other = LaSVC(C=1.0, random_state=3)
    jobs = [dasksvm.submit(data, each, client=client) for each in (solver(), other, solver())]
    models = [job.fetch() for job in jobs]
    assert same(models[0], expected)
    assert same(models[1], train(data, other).model)
    assert same(models[2], expected)
    assert [job.id for job in dasksvm.jobs(client)] == [job.id for job in jobs]
    for job in jobs:
        job.cancel()
    assert left_over(client) == ([], {(0, 0)})


def test_a_budget_ends_a_job_with_a_model(client, data):
    job = dasksvm.submit(data, solver(max_examples=500), client=client)
    assert job.attach(()).state == "stopped"
    assert job.status().about["examples"] == 500
    assert same(job.fetch(), train(data, solver(max_examples=500)).model)
    job.cancel()


def test_a_failed_job_tells_its_error(client, data, tmp_path):
    job = dasksvm.submit(tmp_path / "nothing.zarr", solver(), client=client)
    status = job.attach()
    assert status.state == "failed"
    assert "nothing.zarr is not a data set" in status.error
    with pytest.raises(ValueError, match="is not a data set"):
        job.fetch()
    job.cancel()


def test_a_running_job_is_cancelled_and_another_goes_on(client, data, expected, tmp_path, monkeypatch):
    go_on = slow(monkeypatch, 0.2)
    job = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path, every=0)
    wait_for(lambda: (job.status().progress or {}).get("seen", 0) > 100)
    job.cancel()
    assert job.status().state == "cancelled"
    with pytest.raises(JobCancelled):
        job.fetch()
    assert job.attach().state == "cancelled"
    assert left_over(client) == ([], {(0, 0)})
    go_on.set()
    assert list(tmp_path.glob("snapshot-*"))
    assert not list(tmp_path.glob("*.model"))
    assert job.status().progress["seen"] < 1500
    again = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path, resume=True)
    assert same(again.fetch(), expected)
    assert same(dasksvm.load(tmp_path / f"{again.id}.model"), expected)
    for each in (job, again):
        each.cancel()
    assert dasksvm.jobs(client) == []


def test_a_job_that_waits_is_cancelled(data):
    with cluster(1) as client:
        client.cluster.scale(0)
        wait_for(lambda: not workers_of(client))
        job = dasksvm.submit(data, solver(), client=client)
        assert job.status().state == "queued"
        job.cancel()
        assert job.status().state == "cancelled"
        assert job.attach().state == "cancelled"
        assert left_over(client)[0] == []


def test_a_job_whose_driver_waits_for_workers_is_cancelled(data, monkeypatch):
    missing, waits = placement._missing, []
    monkeypatch.setattr(placement, "_missing", lambda workers: waits.append(workers) or missing(workers))
    with dask.config.set({"dasksvm.worker-timeout": "10m"}), cluster(1) as client:
        client.cluster.scale(1)
        wait_for(lambda: len(workers_of(client)) == 1)
        job = dasksvm.submit(data, solver(), client=client)
        wait_for(lambda: waits)
        job.cancel()
        wait_for(lambda: any(event["kind"] == "ended" for _, event in client.get_events(f"dasksvm-job-{job.id}")))
        assert job.status().state == "cancelled"
        assert left_over(client) == ([], {(0, 0)})


def test_a_fresh_job_does_not_take_anothers_snapshots(client, data, tmp_path, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)
    train(data, solver(), client=client, checkpoint=tmp_path, callbacks=[lambda progress, seconds: progress.seen > 100])
    assert list(tmp_path.glob("snapshot-*"))
    fresh = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path)
    with pytest.raises(FileExistsError, match="holds snapshots"):
        fresh.fetch()
    other = dasksvm.submit(data, solver(C=4.0), client=client, checkpoint=tmp_path, resume=True)
    with pytest.raises(AnotherRun, match=r"classes\.bounds"):
        other.fetch()
    for job in (fresh, other):
        job.cancel()


def test_a_job_that_its_scheduler_does_not_know_any_more_is_lost(client, data):
    job = dasksvm.submit(data, solver(), client=client)
    job.attach(())
    Variable(f"dasksvm-job-{job.id}", client).delete()
    client.cancel(Future(f"dasksvm-job-{job.id}", client), force=True)
    wait_for(lambda: job.status().state == "lost")
    with pytest.raises(JobLost, match="no longer knows"):
        job.fetch()
    job.cancel()
    with pytest.raises(UnknownJob):
        job.status()


def test_what_no_job_can_be(client, data):
    X, y = np.eye(4), [0, 1, 0, 1]
    for given in (X, (X, y), data.as_dask()[0]):
        with pytest.raises(TypeError, match="Dataset or its path"):
            dasksvm.submit(given, solver(), client=client)
    with pytest.raises(ValueError, match="C"):
        dasksvm.submit(data, solver(C=-1.0), client=client)
    with pytest.raises(ValueError, match="need a checkpoint"):
        dasksvm.submit(data, solver(), client=client, resume=True)
    for name in ("../up", "", "a b", "x" * 41):
        with pytest.raises(ValueError, match="letters"):
            dasksvm.submit(data, solver(), client=client, name=name)
    for id in ("../up", "", "a/b", "nobody", "x" * 99):
        with pytest.raises(UnknownJob):
            dasksvm.Job(id, client).status()
    assert dasksvm.jobs(client) == []


def test_without_a_cluster(data, monkeypatch):
    def none():
        raise ValueError("no client")

    monkeypatch.setattr(Client, "current", none)
    for asked in (lambda: dasksvm.submit(data, solver()), dasksvm.jobs, dasksvm.Job("nobody").status):
        with pytest.raises(ValueError, match="jobs need a cluster"):
            asked()
