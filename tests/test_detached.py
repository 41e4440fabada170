"""Jobs on workers that are processes of their own: their client gone, their driver's worker lost."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import dasksvm
from dasksvm import train
from dasksvm.runtime import JobLost
from tests.clusters import (
    Brake,
    cluster,
    compute_workers,
    coordinator_worker,
    left_over,
    quick,
    sabotage,
    same,
    send,
    solver,
    wait_for,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def expected(data):
    return train(data, solver()).model


def beyond(job, seen):
    """Wait until a job has seen so many examples."""
    give_up = time.monotonic() + 90
    while True:
        status = job.status()
        if status.progress is not None and status.progress["seen"] > seen:
            return status
        assert not status.over
        assert time.monotonic() < give_up
        time.sleep(0.05)


def started(client, job):
    """On which workers its driver was started."""
    events = [event for _, event in client.get_events(f"dasksvm-job-{job.id}")]
    return [event["worker"] for event in events if event["kind"] == "started"]


def forget(client, job):
    job.cancel()
    assert left_over(client) == ([], {(0, 0)})


SUBMIT = """
import sys, time
import dasksvm
from tests.clusters import solver
print(dasksvm.submit(sys.argv[2], solver(), client=sys.argv[1]).id, flush=True)
time.sleep(600)
"""
ATTACH = """
import sys
import dasksvm
job = dasksvm.Job(sys.argv[2], sys.argv[1])
seen = []
assert job.attach([lambda progress, seconds: bool(seen.append(progress.seen))]).state == "done"
assert 0 <= seen[0] < seen[-1] == 16_000
job.fetch().save(sys.argv[3])
"""


def test_submitted_client_killed_attached_from_another_process_fetched(client, data, expected, tmp_path):
    address = client.scheduler.address
    submitting = subprocess.Popen([sys.executable, "-c", SUBMIT, address, data.path], stdout=subprocess.PIPE, text=True)
    with submitting:
        id = submitting.stdout.readline().strip()
        submitting.send_signal(signal.SIGKILL)
    job = dasksvm.Job(id, client)
    assert not beyond(job, 100).over
    model = tmp_path / "model"
    subprocess.run([sys.executable, "-c", ATTACH, address, id, model], check=True, timeout=120)
    assert same(dasksvm.load(model), expected)
    assert [other.id for other in dasksvm.jobs(client)] == [id]
    forget(client, job)


@pytest.mark.parametrize("kept", [True, False], ids=["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("where", ["coordinator", "compute"])
def test_driver_worker_killed(client, data, expected, tmp_path, monkeypatch, kept, where):
    """Beside the coordinator, which is lost too, or alone."""
    if where == "compute":
        monkeypatch.setattr("dasksvm.runtime.jobs.job.workers_with", lambda *_: compute_workers(client)[:1])
    job = dasksvm.submit(data, solver(), client=client, **({"checkpoint": tmp_path, "every": 0.2} if kept else {}))
    beyond(job, 2000)
    (victim,) = started(client, job)
    assert (victim == coordinator_worker(client)) == (where == "coordinator")
    send(client, victim, signal.SIGKILL)
    assert same(job.fetch(), expected)
    assert len(started(client, job)) == 2
    forget(client, job)


def test_two_jobs_and_a_compute_worker_killed(client, data, expected):
    jobs = [dasksvm.submit(data, solver(), client=client) for _ in range(2)]
    beyond(jobs[1], 2000)
    send(client, compute_workers(client)[0], signal.SIGKILL)
    for job in jobs:
        assert same(job.fetch(), expected)
        job.cancel()
    assert left_over(client) == ([], {(0, 0)})


def test_the_worker_that_has_the_result_killed(client, data, expected, tmp_path):
    """What was written into the folder at the end is the result."""
    job = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path)
    assert job.attach().state == "done"
    send(client, started(client, job)[0], signal.SIGKILL)
    assert same(job.fetch(), expected)
    assert len(started(client, job)) == 2
    assert (
        sum(event["phase"] == "done" for event in client.get_events(f"dasksvm-job-{job.id}") if "phase" in event) <= 1
    )
    forget(client, job)


def test_more_losses_than_allowed(data, tmp_path):
    """A job that comes further each time is not given up."""
    with (
        quick(**{"distributed.scheduler.allowed-failures": 1}),
        cluster(1, processes=True) as client,
    ):
        client.register_plugin(Brake())
        longer = solver(epochs=3)
        job = dasksvm.submit(data, longer, client=client, checkpoint=tmp_path, every=0.2)
        seen = 0
        for kills in range(4):
            seen = beyond(job, seen).progress["seen"]
            places = started(client, job)
            assert len(places) == kills + 1
            send(client, places[-1], signal.SIGKILL)
        assert same(job.fetch(), train(data, longer, client=client).model)
        assert len(started(client, job)) == 5
        forget(client, job)


def test_a_job_that_was_given_up_goes_on_as_another(data, expected, tmp_path):
    with (
        quick(**{"distributed.scheduler.allowed-failures": 0}),
        cluster(1, processes=True) as client,
    ):
        client.register_plugin(Brake())
        job = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path, every=0.2)
        beyond(job, 2000)
        send(client, started(client, job)[0], signal.SIGKILL)
        status = job.attach()
        assert status.state == "lost"
        assert "too many" in status.error
        with pytest.raises(JobLost, match="resume=True"):
            job.fetch()
        again = dasksvm.submit(data, solver(), client=client, checkpoint=tmp_path, resume=True)
        first = []
        again.attach([lambda progress, seconds: bool(first.append(progress.seen))])
        assert first[0] > 500
        assert same(again.fetch(), expected)
        again.cancel()
        forget(client, job)


def test_cancelled_while_all_workers_are_frozen(client, data):
    pids = client.run(os.getpid, workers=compute_workers(client))
    client.run(sabotage, 9, signal.SIGSTOP, workers=compute_workers(client))
    job = dasksvm.submit(data, solver(), client=client)
    try:
        wait_for(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids.values()))
        job.cancel()
        wait_for(lambda: any(event["kind"] == "ended" for _, event in client.get_events(f"dasksvm-job-{job.id}")))
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
    assert job.status().state == "cancelled"
    assert left_over(client) == ([], {(0, 0)})
