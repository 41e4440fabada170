"""Where the time of a run went."""

from typing import get_args

import numpy as np
import pytest

from dasksvm import LaSVC, train
from dasksvm.solver.blocks.learner import BlocksSettings
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import TimedPart
from dasksvm.solver.state.expansion import Tools
from dasksvm.training import timings
from dasksvm.training.timings import PARTS, PartTimer, Timings
from tests.clusters import cluster
from tests.helpers import COMMON, blobs

MAIN = ("waiting", "taking", "submitting", "keeping")


def total(found, names):
    return sum(getattr(found, name) for name in names)


def test_a_part_within_another_interrupts_it(monkeypatch):
    times = iter([10.0, 11.0, 13.0, 16.0])
    monkeypatch.setattr(timings, "perf_counter", lambda: next(times))
    found = Timings()
    observe = PartTimer(found)
    with observe("shifting"), observe("solving"):
        pass
    assert (found.shifting, found.solving) == (1.0 + 3.0, 2.0)


def test_a_part_that_fails_ends():
    found = Timings()
    observe = PartTimer(found)
    with pytest.raises(ValueError, match="in the part"), observe("shifting"):
        raise ValueError("in the part")
    before = found.shifting
    with observe("solving"):
        pass
    assert found.shifting == before


@pytest.mark.parametrize("width", [5, 400])
def test_the_parts_of_training_in_blocks_add_up(width):
    X, y = blobs(3000, width, shift=0.6 / np.sqrt(width / 5))
    run = train((X, y), LaSVC(engine="blocks", epochs="converged", random_state=0))
    found = run.timings
    assert all(getattr(found, name) > 0 for name in PARTS if name != "storing" or width == 400)
    assert total(found, PARTS) <= total(found, MAIN) <= found.seconds
    assert "gradients" in found.summary()


def test_every_part_is_named_in_summaries():
    assert tuple(PARTS) == get_args(TimedPart)


def test_single_steps_have_no_parts():
    X, y = blobs(500)
    found = train((X, y), LaSVC(engine="single", random_state=0)).timings
    assert total(found, PARTS) == 0
    assert "\n" not in found.summary()


@pytest.mark.cluster
def test_the_parts_are_measured_by_the_coordinator(data):
    with cluster() as client:
        found = train(data, LaSVC(engine="blocks", random_state=0), client=client).timings
    assert all(getattr(found, name) > 0 for name in ("updating", "squaring", "solving", "shifting"))
    assert total(found, PARTS) <= total(found, MAIN) <= found.seconds


def test_a_copy_is_not_measured():
    found = Timings()
    given = COMMON | {"kernel": Kernel("rbf", 0.5)}
    learner = make_learner(BlocksSettings(batch=100, working_set=50, **given))
    learner.use_tools(Tools(observe=PartTimer(found)))
    with learner.expansion.with_own_cache().tools.observe("shifting"):
        pass
    assert found == Timings()
