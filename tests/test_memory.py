"""What a run needs is compared with what the workers have, before it starts and while it runs."""

import dask.array as da
import numpy as np
import pytest

from dasksvm.data.sources import DaskSource, Examples
from dasksvm.estimators.problem import read_problem
from dasksvm.runtime import coordinator, driver, memory_limits
from tests.clusters import cluster, noisy, solver

GB = 1 << 30


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=30_000)


@pytest.fixture
def prepared(data):
    model = solver(cache_size=2000)
    problem = read_problem(model, data, None, None, reset=True)
    learner, examples, _ = model._prepare(problem, model._coding(problem), 1)
    return learner, examples


def workers(coordinator_limit, limit):
    return {
        "tcp://a": {"memory_limit": coordinator_limit, "resources": {"coordinator": 1}},
        "tcp://b": {"memory_limit": limit, "resources": {"compute": 1}},
    }


def test_a_coordinator_that_is_too_small_is_refused_with_the_figures(prepared):
    memory_limits.check_memory(workers(5 * GB, GB), "tcp://a", True, *prepared, copies=False)
    memory_limits.check_memory(workers(0, 0), "tcp://a", True, *prepared, copies=False)
    with pytest.raises(RuntimeError, match="finished copy"):
        memory_limits.check_memory(workers(5 * GB, GB), "tcp://a", True, *prepared, copies=True)
    with pytest.raises(RuntimeError) as caught:
        memory_limits.check_memory(workers(2 * GB, GB), "tcp://a", True, *prepared, copies=False)
    told = str(caught.value)
    for part in (
        "coordinator tcp://a",
        "kernel rows (cache_size) 1.95 GiB",
        "the process 250.00 MiB",
        "80%",
        "2.00 GiB",
    ):
        assert part in told


def test_a_worker_that_is_too_small_for_the_chunks_is_refused(prepared):
    learner, examples = prepared
    wide = DaskSource(da.zeros((200_000, 1000), chunks=(50_000, 1000), dtype=np.float32), lambda block: block)
    large = Examples(wide, examples.form, examples.columns, examples.coding, 0)
    memory_limits.check_memory(workers(5 * GB, 2 * GB), "tcp://a", True, learner, large, copies=False)
    with pytest.raises(RuntimeError, match=r"compute worker tcp://b \(3 chunks of rows 572\.20 MiB"):
        memory_limits.check_memory(workers(5 * GB, GB), "tcp://a", True, learner, large, copies=False)


def test_few_rows_need_little_whatever_the_budget(tmp_path, data):
    model = solver(cache_size=50_000)
    problem = read_problem(model, noisy(tmp_path / "few", rows=500), None, None, reset=True)
    learner, examples, _ = model._prepare(problem, model._coding(problem), 1)
    assert told(workers(GB, GB // 2), learner, examples) is None
    # 500 rows of 500 float32 values, and not the 48.8 GiB of the budget.
    assert "kernel rows (cache_size) 0.95 MiB" in told(workers(GB // 4, GB), learner, examples)
    # With more rows the same budget does not fit.
    problem = read_problem(model, data, None, None, reset=True)
    learner, examples, _ = model._prepare(problem, model._coding(problem), 1)
    assert "kernel rows (cache_size) 3.35 GiB" in told(workers(GB, GB // 2), learner, examples)


def told(workers, learner, examples):
    """What a check says, None where all fits."""
    try:
        memory_limits.check_memory(workers, "tcp://a", True, learner, examples, copies=False)
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.cluster
def test_the_limits_of_real_workers_are_read(data):
    with (
        cluster(1, processes=True, memory_limit="500MB") as client,
        pytest.raises(RuntimeError, match=r"needs .* on the coordinator .* of its limit of 476\.84 MiB"),
    ):
        solver(cache_size=2000, client=client).fit(data)


def test_a_run_ends_with_what_it_has_before_memory_does(data, monkeypatch):
    asked = []

    def nearly_full(worker):
        asked.append(worker)
        return "4.6 GiB of 5.0 GiB" if len(asked) > 2 else None

    monkeypatch.setattr(coordinator, "nearly_full", nearly_full)
    monkeypatch.setattr(driver, "TICK", 0.05)
    with (
        cluster() as client,
        pytest.warns(RuntimeWarning, match=r"uses 4\.6 GiB of 5\.0 GiB of memory while it keeps \d+ examples"),
    ):
        model = solver(client=client).fit(data)
    assert 0 < model.history_[-1]["seen"] < len(data)
