"""Pipelines on small data: that a row comes out, with the figures of what was trained."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pipelines import multiclass, robust
from pipelines.tasks import Task
from tests.helpers import blobs

pytestmark = pytest.mark.slow


def row(main, *arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


@pytest.mark.parametrize("variant", ["S2DO_ALL", "batch"])
def test_curves_of_machines(variant):
    found = row(multiclass.main, "curves", "--task", "digits-300", "--machine", "cs", "--one", variant)
    assert found["error_percent"] < 20
    assert found["dual"] > 0
    assert any("error" in entry for entry in found["curve"])


@pytest.mark.parametrize("of", ["nc", "lasvm"])
def test_robust_solvers_watched_and_not(of, monkeypatch):
    X, y = blobs(700, d=3, shift=1.0)
    X = X.astype(np.float32)
    task = Task("banana", X[:500], y[:500], X[500:], y[500:], {"C": 10.0, "gamma": 0.3})
    monkeypatch.setattr(robust, "task_of", lambda name, seed, data: task)
    plain, watched = (row(robust.main, "fit", "--solver", of, *more) for more in ((), ("--watch",)))
    assert plain["accuracy"] == watched["accuracy"] > 70
    assert plain["support_vectors"] == watched["support_vectors"]
    assert {"break_even", "support_vectors", "seen"} <= set(watched["curve"][-1])
    seen = [step["seen"] for step in watched["steps"]]
    assert seen == sorted(seen)
