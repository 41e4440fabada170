"""A scheduler or workers that are stopped, not dead: the run says what it waits for, and ends with an error that helps."""

import asyncio
import os
import signal
import threading

import pytest
from distributed import Client

import dasksvm
from dasksvm import train
from dasksvm.runtime import SchedulerLost, WorkersLost, driver, worker_health, workers_of
from dasksvm.training.snapshots import snapshots_in
from tests.clusters import cluster, compute_workers, digest, history, quick, send, solver, wait_for

SILENT = r"the scheduler \S+ has not answered for 5 s \(dasksvm.scheduler-timeout\)"


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(driver, "TICK", 0.05)


def freezing(when, act):
    """A callback that acts the first time that a condition holds."""
    done = []

    def watch(progress, seconds):
        if not done and when(progress):
            done.append(True)
            act()
        return False

    watch.done = done
    return watch


@pytest.fixture
def frozen():
    """Stop processes, which are thawed at the end whatever happens."""
    stopped = []

    def freeze(*pids):
        for pid in pids:
            stopped.append(pid)
            os.kill(pid, signal.SIGSTOP)

    yield freeze
    thaw(stopped)


def thaw(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


class Hung:
    """A scheduler in this process one of whose operations does not answer until it is told to."""

    def __init__(self, client, operation):
        self.handlers, self.operation = client.cluster.scheduler.handlers, operation
        self.go_on = threading.Event()

    def __enter__(self):
        self.before = self.handlers[self.operation]

        async def wait(**arguments):
            while not self.go_on.is_set():
                await asyncio.sleep(0.01)
            return self.before(**arguments)

        self.handlers[self.operation] = wait
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.handlers[self.operation] = self.before


def test_a_scheduler_that_does_not_answer_is_told_of_and_given_up(caplog):
    with cluster(1) as client, Hung(client, "identity"), quick(**{"dasksvm.scheduler-timeout": "400ms"}):
        with pytest.raises(SchedulerLost, match=r"has not answered for 0.4 s \(dasksvm.scheduler-timeout\)"):
            workers_of(client)
        assert "waiting for the scheduler" in caplog.text


def test_a_scheduler_that_answers_late_is_waited_for(caplog, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.cluster.LOG_AFTER", 0.1)
    with cluster(1) as client, Hung(client, "identity") as hung:
        told = threading.Thread(target=lambda: (wait_for(lambda: "waiting for" in caplog.text), hung.go_on.set()))
        told.start()
        assert len(workers_of(client)) == 2
        told.join()


@pytest.mark.parametrize("operation", ["get_metadata", "log_event"])
def test_a_job_whose_scheduler_does_not_answer_ends(tmp_path, operation, caplog):
    """Whether it is cancelled is asked of the scheduler, and what it tells goes there."""
    data = dasksvm.Dataset.create(tmp_path / "data", [[0.0], [1.0]] * 50, [0, 1] * 50)
    with cluster(1) as client, quick(**{"dasksvm.scheduler-timeout": "1500ms"}), Hung(client, operation):
        job = dasksvm.submit(data, solver(), client=client)
        wait_for(lambda: client.sync(client.scheduler.get_task_status, keys=[f"dasksvm-job-{job.id}"]))
        if operation == "get_metadata":
            with pytest.raises(SchedulerLost, match="has not answered"):
                job.status()
            assert job_error(client, job)
        else:
            assert "has not answered" in job_error(client, job)


def job_error(client, job):
    key = f"dasksvm-job-{job.id}"

    def state():
        return client.sync(client.scheduler.get_task_status, keys=[key])[key]

    wait_for(lambda: state() == "erred")
    return str(dasksvm.runtime.jobs.job._future(client, key).exception())


class Watched:
    """The workers for tiles of a run, as a scheduler and a clock of their own show them."""

    def __init__(self, monkeypatch, caplog, timeout):
        self.now, self.workers = 100.0, {}
        self.caplog = caplog
        monkeypatch.setattr(worker_health, "monotonic", lambda: self.now)
        monkeypatch.setattr(worker_health, "workers_of", lambda client: self.workers)
        with quick(**{"dasksvm.worker-timeout": timeout}):
            self.watcher = worker_health.TileWorkers(None, "r", "tcp://c")
        self.beat("c", "coordinator")

    def beat(self, name, resource="compute"):
        self.workers[f"tcp://{name}"] = {"resources": {resource: 1}, "last_seen": self.now}

    def wait(self, seconds, *beating):
        """Wait for a batch, while some workers send heartbeats; give what is told."""
        self.caplog.clear()
        for _ in range(int(4 * seconds)):
            self.now += 0.25
            for name in beating:
                self.workers[f"tcp://{name}"]["last_seen"] = self.now
            self.watcher.watch(waiting=True)
        return self.caplog.text


def test_workers_without_a_sign_of_life_are_told_of_and_given_up(monkeypatch, caplog):
    watched = Watched(monkeypatch, caplog, "60s")
    watched.beat("a")
    watched.beat("b")
    assert watched.wait(9, "a") == ""
    assert watched.wait(8) == ""
    assert "the compute workers (2) give no sign of life" in watched.wait(8)
    # Told once.
    assert watched.wait(10) == ""
    # One that comes back is waited for anew.
    assert "although the compute workers (2) are alive" in watched.wait(40, "b")
    watched.watcher.watch(waiting=False)
    assert "no sign of life" in watched.wait(59)
    with pytest.raises(WorkersLost, match=r"the compute workers \(2\) gave no sign of life for 60 s"):
        watched.wait(5)


def test_workers_that_are_gone_are_told_of_at_once_and_given_up(monkeypatch, caplog):
    watched = Watched(monkeypatch, caplog, "60s")
    assert "there are no compute workers left" in watched.wait(2)
    assert watched.wait(57) == ""
    with pytest.raises(WorkersLost, match=r"there were no compute workers for 60 s \(dasksvm.worker-timeout\)"):
        watched.wait(3)
    # One that is new is a sign of life; without resources every worker but the coordinator's computes tiles.
    watched.workers.clear()
    for name in ("c", "a"):
        watched.beat(name, "other")
    assert "the compute workers (1) give no sign of life" in watched.wait(40, "c")


@pytest.mark.cluster
def test_frozen_scheduler_ends_the_run_which_is_resumed(start, frozen, data, tmp_path, alone, caplog):
    first, kept = start(), tmp_path / "kept"
    freeze = freezing(lambda progress: progress.seen > 3000 and snapshots_in(kept), lambda: frozen(first.scheduler.pid))
    with quick(**{"dasksvm.scheduler-timeout": "5s"}):
        with Client(scheduler_file=str(first.file), set_as_default=False) as client:
            client.wait_for_workers(2)
            address = client.scheduler.address
        # The client of the run is closed, too, while the scheduler is frozen.
        with pytest.raises(SchedulerLost, match=rf"{SILENT}.* resumed from {kept}.*--resume"):
            train(data, solver(), client=address, checkpoint=kept, every=0.2, callbacks=[freeze])
        assert freeze.done
        assert "waiting for the scheduler" in caplog.text
        thaw([first.scheduler.pid])
        run = train(data, solver(), client=address, checkpoint=kept, resume=True)
    assert digest(run.estimator) == digest(alone)
    assert history(run.estimator) == history(alone)


@pytest.mark.cluster
def test_scheduler_thawed_in_time(start, frozen, data, alone, caplog, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.cluster.LOG_AFTER", 1.0)
    first = start()

    def thaw_when_told():
        wait_for(lambda: "waiting for the scheduler" in caplog.text)
        thaw([first.scheduler.pid])

    timer = threading.Thread(target=thaw_when_told)
    freeze = freezing(lambda progress: progress.seen > 3000, lambda: (frozen(first.scheduler.pid), timer.start()))
    with quick(), Client(scheduler_file=str(first.file), direct_to_workers=True, set_as_default=False) as client:
        client.wait_for_workers(2)
        run = train(data, solver(), client=client, callbacks=[freeze])
    timer.join()
    assert freeze.done
    assert digest(run.estimator) == digest(alone)


@pytest.mark.cluster
def test_all_compute_workers_frozen(client, frozen, data, tmp_path, alone, caplog, monkeypatch):
    """They end the run with an error that says how to resume it; thawed in time, they do not."""
    monkeypatch.setattr(worker_health, "LOG_AFTER", 2.0)
    pids = client.run(os.getpid, workers=compute_workers(client)).values()
    kept = tmp_path / "kept"
    freeze = freezing(lambda progress: progress.seen > 3000 and snapshots_in(kept), lambda: frozen(*pids))
    with (
        quick(**{"dasksvm.worker-timeout": "10s"}),
        pytest.raises(
            WorkersLost,
            match=rf"compute workers \(2\) gave no sign of life for 10 s \(dasksvm.worker-timeout\).* from {kept}.*--resume",
        ),
    ):
        train(data, solver(), client=client, checkpoint=kept, every=0.2, callbacks=[freeze])
    assert freeze.done
    assert "the compute workers (2) give no sign of life" in caplog.text
    thaw(pids)
    run = train(data, solver(), client=client, checkpoint=kept, resume=True)
    assert digest(run.estimator) == digest(alone)
    caplog.clear()

    def thaw_when_told():
        wait_for(lambda: "no sign of life" in caplog.text)
        thaw(pids)

    timer = threading.Thread(target=thaw_when_told)
    freeze = freezing(lambda progress: progress.seen > 3000, lambda: (frozen(*pids), timer.start()))
    run = train(data, solver(), client=client, callbacks=[freeze])
    timer.join()
    assert digest(run.estimator) == digest(alone)


@pytest.mark.cluster
def test_a_local_cluster_whose_workers_are_frozen_is_closed(data, frozen):
    with quick(**{"dasksvm.worker-timeout": "10s"}), cluster(2, processes=True) as client:
        pids = client.run(os.getpid, workers=compute_workers(client)).values()
        freeze = freezing(lambda progress: True, lambda: frozen(*pids))
        with pytest.raises(WorkersLost, match=r"wrote no snapshots .*it has to be started again"):
            train(data, solver(), client=client, callbacks=[freeze])


@pytest.mark.cluster
def test_frozen_coordinator_is_told_of(client, data, alone, caplog, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.coordinator_client.LOG_AFTER", 1.0)
    monkeypatch.setattr("dasksvm.runtime.coordinator_client.SIGN_OF_LIFE", 1.0)
    monkeypatch.setattr(driver, "RESTART_TIMEOUT", 4.0)
    (address,) = set(workers_of(client)) - set(compute_workers(client))
    freeze = freezing(lambda progress: progress.seen > 3000, lambda: send(client, address, signal.SIGSTOP))
    with quick(**{"dasksvm.answer-timeout": "4s"}):
        run = train(data, solver(), client=client, callbacks=[freeze])
    assert f"waiting for the coordinator of the run on {address}" in caplog.text
    assert digest(run.estimator) == digest(alone)
