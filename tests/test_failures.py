"""Workers that are processes of their own, lost, frozen and thawed: the model of an undisturbed run."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dasksvm import train
from dasksvm.solver.engine import learner_state
from tests.clusters import (
    cluster,
    compute_workers,
    coordinator_worker,
    digest,
    history,
    left_over,
    noisy,
    sabotage,
    send,
    solver,
)

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("sequence", [0, 3, 25])
def test_compute_worker_killed_in_the_middle_of_a_task(client, data, alone, sequence):
    for address in compute_workers(client)[:1] if sequence else compute_workers(client):
        client.run(sabotage, sequence, workers=[address])
    model = solver(client=client).fit(data)
    assert digest(model) == digest(alone)
    assert history(model) == history(alone)


def test_compute_worker_killed_while_it_chooses(client, data):
    settings = {"selection": "active", "max_examples": 500}
    expected = solver(**settings).fit(data)
    client.run(sabotage, 12, workers=compute_workers(client)[:1])
    model = solver(client=client, **settings).fit(data)
    assert digest(model) == digest(expected)
    assert history(model) == history(expected)


def test_compute_worker_killed_while_checking(client, data):
    settings = {"C": 1e-5}  # no free support vector: the bias needs a pass over the whole set
    expected = solver(**settings).fit(data)
    victim = compute_workers(client)[0]
    phases = []

    def kill(progress, seconds):
        phases.append(progress.phase)
        if progress.phase == "checking" and phases.count("checking") == 1:
            send(client, victim, signal.SIGKILL)
        return False

    run = train(data, solver(**settings), client=client, callbacks=[kill])
    assert "checking" in phases
    assert digest(run.estimator) == digest(expected)


def test_all_compute_workers_killed_come_back(client, data, alone):
    """The nannies start new ones; meanwhile the run waits."""
    killed = []

    def kill(progress, seconds):
        if not killed:
            killed.extend(send(client, address, signal.SIGKILL) for address in compute_workers(client))
        return False

    run = train(data, solver(), client=client, callbacks=[kill])
    assert len(killed) == 2
    assert digest(run.estimator) == digest(alone)


def test_frozen_worker_does_not_stall_the_run(client, data, alone):
    victim = compute_workers(client)[0]
    pid = client.run(os.getpid, workers=[victim])[victim]
    client.run(sabotage, 2, signal.SIGSTOP, workers=[victim])
    try:
        start = time.monotonic()
        run = train(data, solver(), client=client)
        seconds = time.monotonic() - start
    finally:
        os.kill(pid, signal.SIGCONT)
    assert digest(run.estimator) == digest(alone)
    assert run.timings.repeats >= 1
    assert seconds < 60
    assert digest(solver(client=client).fit(data)) == digest(alone)


def test_worker_frozen_and_thawed_while_the_run_goes_on(client, data, alone):
    victim = compute_workers(client)[0]
    pid = client.run(os.getpid, workers=[victim])[victim]
    client.run(sabotage, 5, signal.SIGSTOP, workers=[victim])
    thaw = threading.Timer(1.5, os.kill, (pid, signal.SIGCONT))
    thaw.start()
    model = solver(client=client).fit(data)
    thaw.join()
    assert digest(model) == digest(alone)


def test_coordinator_worker_killed(client, data, alone, caplog):
    killed = []

    def kill(progress, seconds):
        if not killed and progress.seen > 1000:
            killed.append(send(client, coordinator_worker(client), signal.SIGKILL))
        return False

    run = train(data, solver(), client=client, callbacks=[kill])
    assert killed
    assert digest(run.estimator) == digest(alone)
    assert history(run.estimator) == history(alone)


def slow(calls, seconds):
    """On a worker: take so long for each of so many batches."""
    from dasksvm.runtime import worker_tasks

    execute, left = worker_tasks.execute, [calls]

    def late(*arguments):
        left[0] -= 1
        if not left[0]:
            worker_tasks.execute = execute
        time.sleep(seconds)
        return execute(*arguments)

    worker_tasks.execute = late


def test_coordinator_worker_closed(client, data, alone, caplog):
    """A worker that is asked to go closes its own client first, and the coordinator is waiting for tiles."""
    client.run(slow, 20, 0.1, workers=compute_workers(client))
    closing = []

    def close(progress, seconds):
        if not closing and progress.seen > 300:
            closing.append(threading.Thread(target=client.restart_workers, args=([coordinator_worker(client)],)))
            closing[0].start()
        return False

    run = train(data, solver(), client=client, callbacks=[close])
    closing[0].join()
    assert "starts another one" in caplog.text
    assert digest(run.estimator) == digest(alone)
    assert history(run.estimator) == history(alone)


def test_an_answer_that_cannot_be_read_ends_the_run(client, data, monkeypatch):
    def restore(*given):
        raise MemoryError("no room for the learner")

    def spoil(progress, seconds):
        if progress.phase == "done":
            monkeypatch.setattr(learner_state, "restore", restore)
        return False

    with pytest.raises(MemoryError, match="no room for the learner"):
        train(data, solver(max_examples=1000), client=client, callbacks=[spoil])


def test_worker_that_joins_late_and_more_workers_than_chunks(tmp_path):
    data = noisy(tmp_path / "few", rows=9000, chunk_rows=6000)
    with cluster(1, processes=True) as client:
        grown = []

        def grow(progress, seconds):
            if not grown:
                grown.append(client.cluster.scale(4))
            return False

        run = train(data, solver(), client=client, callbacks=[grow])
        client.wait_for_workers(4)
        assert digest(run.estimator) == digest(solver().fit(data))
        assert digest(solver(client=client).fit(data)) == digest(run.estimator)
        assert left_over(client) == ([], {(0, 0)})


CODE = """
import sys
from dasksvm import Dataset
from tests.clusters import cluster, compute_workers, digest, sabotage, solver
data = Dataset.open(sys.argv[1])
print(digest(solver().fit(data)))
if __name__ == "__main__":
    with cluster(2, processes=True) as client:
        client.run(sabotage, 9, workers=compute_workers(client)[:1])
        print(digest(solver(client=client).fit(data)))
"""


def test_one_model_under_another_set_of_blas_kernels(data, tmp_path):
    """The other tests run under the machine's own set, or under the one that the environment asks for."""
    script = tmp_path / "agree.py"
    script.write_text(CODE)
    environment = dict(os.environ) | {"PYTHONPATH": os.getcwd()}
    if environment.pop("OPENBLAS_CORETYPE", None) is None:
        environment["OPENBLAS_CORETYPE"] = "Haswell"
    command = [sys.executable, str(script), data.path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    digests = done.stdout.split()
    assert len(set(digests)) == 1
    assert len(digests) >= 2
