"""The model of `pipelines.scale`: its clock, its cores, its costs and counts, on runs that can be followed by hand."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from click.testing import CliRunner

from dasksvm import Dataset, LaSVC, train
from pipelines import scale
from pipelines.scale_costs import Costs, MessageCosts
from pipelines.scale_events import Clock, Cores, Turns
from pipelines.scale_simulation import Cluster, Simulation, simulate
from pipelines.scale_trace import Shape, Shift, Step, Trace, default_shape, trace_of
from pipelines.scale_values import ValueCosts
from pipelines.scale_workload import PowerLaw, Workload
from pipelines.tasks import Task
from tests.helpers import blobs

# A nanosecond for each value, so that 10⁹ values take a second, and no latency.
VALUES = ValueCosts(1, 1, score=1, update=1, sum=1, square=1, store=1, kept=0.5, gather=0.25, read=0)
FREE = MessageCosts(0, 0, 0, 0, 0, 0, 0, 0)
COSTS = Costs({4: VALUES}, inner={10: 0.01, 20: 0.02}, bookkeeping=(1.0, 0.0), messages=FREE, cores=2)
GIGA = 10**9
SMALL = Shape(600, 100, 8)


def trace(*steps, lookahead=2, width=4):
    return Trace("by hand", width, 1000, Shape(100, 10, lookahead), steps)


def batch(seconds, requested=0, **more):
    """A batch that takes a worker some seconds."""
    return Step("online", 0, 0, 0, requested, rows=1000, support=int(seconds * GIGA / 1000), **more)


def machines(workers, coordinator_threads=1, least_saving=1e9):
    return Cluster(workers, coordinator_threads, None, least_saving)


# Clock


def finished(clock, events):
    """The times at which some events happen."""
    times = {}

    def wait(name, event):
        yield event
        times[name] = clock.now

    for name, event in events.items():
        clock.start(wait(name, event))
    clock.run()
    return times


def test_two_jobs_share_a_core():
    """Both progress at half the rate until the first ends after 2 s of work each."""
    clock = Clock()
    cores = Cores(clock, 1)
    times = finished(clock, {"short": cores.work(1.0), "long": cores.work(3.0)})
    assert times == pytest.approx({"short": 2.0, "long": 4.0})
    assert cores.delivered == pytest.approx(4.0)


def test_a_job_that_comes_later_slows_down_the_first():
    clock = Clock()
    cores, times = Cores(clock, 1), {}

    def run(name, begin, seconds):
        yield clock.after(begin)
        yield cores.work(seconds)
        times[name] = clock.now

    clock.start(run("first", 0.0, 2.0))
    clock.start(run("second", 1.0, 2.0))
    clock.run()
    assert times == pytest.approx({"first": 3.0, "second": 4.0})


def test_cores_that_are_busy_together_are_slower():
    clock = Clock()
    cores = Cores(clock, 2, crowding=1.5)
    assert finished(clock, {"a": cores.work(2.0), "b": cores.work(4.0)}) == pytest.approx({"a": 3.0, "b": 5.0})


def test_turns_are_taken_one_after_the_other():
    clock = Clock()
    link = Turns(clock)
    assert finished(clock, {"a": link.use(2.0), "b": link.use(1.0)}) == pytest.approx({"a": 2.0, "b": 3.0})


# Simulation


def test_one_worker_without_latency_by_hand():
    """Batches of 2, 3 and 1 s with a lookahead of 2: the worker never waits, the coordinator waits for it."""
    steps = (batch(2), batch(3), batch(1, requested=1))
    run = Simulation(trace(*steps), COSTS, machines(1))
    found = run.run()
    # Bookkeeping takes 1 s: results come after 2, 5 and 6 s.
    assert run.ends == pytest.approx([3.0, 6.0, 7.0])
    assert found.parts["waiting"] == pytest.approx(2.0 + 2.0 + 0.0)
    assert found.parts["bookkeeping"] == pytest.approx(3.0)
    assert found.seconds == pytest.approx(7.0)
    assert found.busy == pytest.approx(3 / 7)


def test_a_round_by_hand():
    """Square, steps and shift, one after the other; the second coordinator thread halves the square and the shift."""
    shift = Shift(rows=2000, changed=500_000, computed=GIGA // 2, movable=True, slots=0, generation=0)
    step = Step("finishing", 0, 0, 0, 0, squared=GIGA, size=31_623, inner=10, shifts=(shift,))
    alone, shared = (simulate(trace(step), COSTS, machines(1, coordinator_threads=threads)) for threads in (1, 2))
    inner = 10 * 1e-3 * 31_623
    # Half of the values of the shift are kept.
    assert alone.seconds == pytest.approx(1 + 1 + inner + 0.5 + 0.25, rel=1e-3)
    assert shared.seconds == pytest.approx(1 + 0.5 + inner + 0.25 + 0.125, rel=1e-3)


def test_results_are_applied_in_order():
    """The first batch is the slowest: the others, which other workers have finished, wait for it."""
    steps = (batch(9), batch(1), batch(1), batch(1, requested=1))
    run = Simulation(trace(*steps, lookahead=3), COSTS, machines(3))
    run.run()
    assert run.ends == pytest.approx([10.0, 11.0, 12.0, 13.0])


def many_steps(rounds=30):
    rng = np.random.default_rng(0)
    steps = []
    for number in range(rounds):
        shift = Shift(int(rng.integers(600, 9000)), int(rng.integers(1, GIGA // 9000)), 0, True, 10 * number, 0)
        shift = replace(shift, computed=shift.rows * shift.changed)
        each = batch(rng.uniform(0, 3), max(number - 3, 0), updated=int(rng.integers(GIGA)), slots=10 * number)
        steps.append(replace(each, squared=40_000, size=200, inner=30, shifts=(shift,)))
    return trace(*steps, lookahead=4)


@pytest.mark.parametrize("least_saving", [1e9, 0.0])
@pytest.mark.parametrize("cores", [1, 2, 8])
def test_work_is_conserved(cores, least_saving):
    """What the cores deliver is what the costs add up to, whoever computes it, and the parts add up to the time."""
    given = many_steps()
    costs = replace(COSTS, messages=MessageCosts(0.01, 0.001, 0.002, 0.003, 0.001, 1e-9, 0.004, 0.1))
    run = Simulation(given, costs, Cluster(3, 2, cores, least_saving))
    found = run.run()
    expected = sum(step.evaluations for step in given.steps) / GIGA
    expected += len(given.steps) + sum(step.inner * step.size for step in given.steps) * 1e-3 + 0.005 * found.tasks
    assert run.cores.delivered == pytest.approx(expected)
    by_workers = sum(step.rows * step.support for step in given.steps) / GIGA
    assert found.computed >= by_workers - 1e-9
    assert (found.computed > by_workers + 1) == (least_saving == 0.0)
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.seconds == pytest.approx(run.ends[-1])
    assert found.seconds >= expected / cores - 1e-9


@pytest.mark.parametrize("least_saving", [1e9, 0.0])
def test_more_workers_are_never_slower_without_latency(least_saving):
    times = [simulate(many_steps(), COSTS, machines(n, least_saving=least_saving)).seconds for n in (1, 2, 4, 8, 16)]
    assert np.all(np.diff(times) <= 1e-9)
    # The batches alone keep the coordinator busy; if it lets workers compute sums, they shorten the run.
    assert (times[-1] < times[0]) == (least_saving == 0.0)


def test_features_are_sent_once_to_each_worker_and_again_after_a_compaction():
    one = simulate(trace(batch(1, slots=100), batch(1, slots=150)), COSTS, machines(1))
    plans = 8 * sum(2 * step.support + step.rows for step in (batch(1), batch(1)))
    assert one.sent == plans + 4 * 4 * 150
    steps = (batch(1, slots=100), batch(1, slots=120, generation=1))
    assert simulate(trace(*steps), COSTS, machines(1)).sent == plans + 4 * 4 * 220


def test_steps_that_stand_for_several_take_as_much_longer():
    steps = many_steps().steps
    once = simulate(trace(*steps), COSTS, machines(2))
    often = simulate(trace(*(replace(step, times=7.0) for step in steps)), COSTS, machines(2))
    assert often.seconds == pytest.approx(7 * once.seconds)
    assert (often.sent, often.tasks) == pytest.approx((7 * once.sent, 7 * once.tasks))
    assert (often.busy, often.working) == pytest.approx((once.busy, once.working))


# Counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scale")


@pytest.fixture(scope="module", params=[5, 400])
def stored(request, folder):
    """A data set of narrow rows, or of wide ones, whose kernel values are kept."""
    width = request.param
    X, y = blobs(2500, width, shift=0.6 / np.sqrt(width / 5))
    return Dataset.create(folder / f"{width}.zarr", X.astype(np.float32), y, random_state=0)


def test_counts_add_up_to_the_kernel_values_of_the_run(stored):
    parameters = {"C": 1.0, "gamma": 0.5 / stored.shape[1]}
    found = trace_of("blobs", stored, parameters, default_shape())
    run = train(stored, LaSVC(**parameters, engine="blocks", random_state=0))
    evaluations = sum(step.evaluations for step in found.steps)
    if stored.shape[1] == 5:  # in one process more wide values are kept than on a cluster
        assert evaluations == run.estimator.kernel_evaluations_
    assert sum(step.inner for step in found.steps) == run.estimator.n_iter_
    assert [step.seen for step in found.steps] == [entry["seen"] for entry in run.history[: len(found.steps)]]
    assert Trace.of_json(json.loads(json.dumps(found.as_json()))) == found
    shifts = [shift for step in found.steps for shift in step.shifts]
    assert shifts
    assert {shift.movable for shift in shifts} == {stored.shape[1] == 5}
    simulated = simulate(found, replace(COSTS, values={stored.shape[1]: VALUES}), Cluster(2, cores=2))
    assert sum(simulated.parts.values()) == pytest.approx(simulated.seconds)


def test_costs_survive_json():
    assert Costs.of_json(json.loads(json.dumps(COSTS.as_json()))) == COSTS


def test_steps_cost_what_was_measured_and_in_proportion_beyond():
    costs = replace(COSTS, inner={100: 1.0, 200: 4.0})
    assert [costs.inner_step(size) for size in (50, 100, 150, 200, 400)] == pytest.approx([0.5, 1.0, 2.5, 4.0, 8.0])


def test_a_power_law_is_found_again():
    points = [(n, batch, 8) for n in (100, 1000, 5000) for batch in (10, 50)]
    law = PowerLaw.fit(points, [3.0 * n**0.7 / batch**0.4 for n, batch, _ in points])
    assert law.exponents == pytest.approx((0.7, -0.4, 0.0))
    assert law((10**6, 20, 8)) == pytest.approx(3 * 10**4.2 / 20**0.4)
    assert PowerLaw.fit(points, [0.0] * len(points))((5, 5, 5)) == 0.0


@pytest.fixture(scope="module")
def traces(folder):
    """Runs of several sizes, two of which differ in one setting."""
    found = []
    for count, changed in ((3000, {}), (6000, {}), (6000, {"batch": 300}), (6000, {"working_set": 50})):
        X, y = blobs(count, 2, shift=0.4)
        path = folder / f"rows-{count}.zarr"
        data = Dataset.open(path) if path.exists() else Dataset.create(path, X, y, random_state=0)
        found.append(trace_of("blobs", data, {"C": 1.0, "gamma": 0.5}, replace(SMALL, **changed)))
    return found


def test_a_workload_is_like_the_runs_that_it_was_made_of(traces):
    workload = Workload.of(traces)
    for given in traces[:2]:
        made = workload.trace(given.examples, 2, given.shape, expensive=False)
        for count in ("rows", "inner", "evaluations"):
            totals = [sum(step.times * getattr(step, count) for step in each.steps) for each in (given, made)]
            assert totals[1] == pytest.approx(totals[0], rel=0.5), count
    few, many = (workload.trace(n, 2, SMALL, expensive=False) for n in (10**5, 10**8))
    assert len(many.steps) < 1000
    assert sum(step.times * step.rows for step in many.steps) >= 10**8
    assert max(step.members for step in few.steps) <= 10**5
    assert all(shift.changed <= step.size for step in many.steps for shift in step.shifts)
    kept = workload.trace(10**5, 2, SMALL, expensive=True)
    assert not any(shift.movable for step in kept.steps for shift in step.shifts)


def test_a_workload_needs_traces_that_tell_its_laws(traces):
    with pytest.raises(ValueError, match="two numbers of examples"):
        Workload.of(traces[1:])
    both = replace(traces[1], shape=Shape(300, 50, 8))
    with pytest.raises(ValueError, match="by itself"):
        Workload.of([traces[0], traces[1], both])


def test_settings_are_tried_only_where_traces_differ(traces):
    found = scale.shapes_to_try(Workload.of(traces), [1000, 2000], [64], [8, 512])
    assert found == [Shape(1000, 64, 8), Shape(2000, 64, 8)]


# Commands


def run(*arguments):
    result = CliRunner().invoke(scale.main, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_from_traces_to_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "load", lambda name, data: task(int(name.partition("-")[2])))
    monkeypatch.setattr(scale, "measure_costs", lambda widths: replace(COSTS, values=dict.fromkeys(widths, VALUES)))
    folder = ("--folder", tmp_path)
    run("costs", "--widths", "3,54", *folder)
    for words in ((3000,), (5000,), (5000, "--batch", 500)):
        run("trace", "--task", f"blobs-{words[0]}", *words[1:], *folder, "--store", tmp_path)
    run("sweep", "--tasks", "blobs", "--widths", "3,54", "--examples", "1e4,1e5", "--workers", "4,16", *folder)
    rows = scale.results(tmp_path / scale.SWEPT)
    assert len(rows) == 8
    assert {row["batch"] for row in rows} <= {2000, 8000, 32000}
    assert {row["working_set"] for row in rows} == {1024}
    assert all(0 < row["seconds"] <= row["seconds_with_defaults"] for row in rows)
    assert all(0 < row["busy"] <= 1 for row in rows)
    picture = tmp_path / "scale.svg"
    assert run("plot", "--picture", picture, *folder).strip() == str(picture)
    first = picture.read_bytes()
    run("plot", "--picture", picture, *folder)
    assert picture.read_bytes() == first


def task(count):
    X, y = blobs(count, 3, shift=0.6)
    return Task("blobs", X.astype(np.float32), y, X, y, {"C": 1.0, "gamma": 0.3})


class NoCluster:
    """Stands for a cluster and for a client: nothing runs on it."""

    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def test_validation_compares_the_median_of_the_runs(tmp_path, monkeypatch):
    seconds = iter([9.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr(scale, "load", lambda name, data: task(1000))
    monkeypatch.setattr(scale, "local_cluster", NoCluster)
    monkeypatch.setattr(scale, "Client", NoCluster)
    monkeypatch.setattr(scale, "fit", lambda data, estimator, client: {"seconds": next(seconds)})
    costs = replace(COSTS, values={3: VALUES})
    (tmp_path / scale.COSTS).write_text(json.dumps({"costs": costs.as_json()}))
    where = ("--task", "blobs-1000", "--folder", tmp_path, "--store", tmp_path)
    run("trace", *where)
    run("validate", *where, "--workers", "2", "--repeats", 3)
    (row,) = scale.results(tmp_path / scale.VALIDATED)
    (traced,) = scale.results(scale.trace_path(tmp_path, "blobs-1000", default_shape()))
    predicted = simulate(Trace.of_json(traced), costs, Cluster(2, 2, 2))
    assert row["measured"] == 2.0
    assert row["predicted"] == predicted.seconds
    assert row["ratio"] == pytest.approx(predicted.seconds / 2.0)
    assert asdict(predicted) == row["simulated"]


def test_what_must_be_run_first_is_named(tmp_path):
    result = CliRunner().invoke(scale.main, ["sweep", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "costs.jsonl does not exist" in result.output
