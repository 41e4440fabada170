"""Surveys of the block engine: what is remembered about all examples equals what would be computed again."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from dasksvm import LaSVC, train
from dasksvm.solver.blocks.learner import BlocksLearner
from dasksvm.solver.blocks.survey import WORTH, Survey
from dasksvm.solver.kernels.kernel import Kernel
from tests.helpers import Rows, run
from tests.test_kept_values import check_resumed_runs, learner_with

GAMMA = 0.5


def noisy(n=1500, seed=0, dtype=np.float64):
    """Examples of which a tenth has the wrong label, and the solver's labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = np.where((X[:, 0] + X[:, 1] ** 2 > 0.5) ^ (rng.random(n) < 0.1), 1.0, -1.0)
    return X, Rows(X, y, np.ones(n), dtype)


def converging(rows, **options):
    return learner_with(50 << 20, rows, epochs=0, kernel=Kernel("rbf", GAMMA), **options)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_decision_values_follow_the_coefficients(seed):
    """Members come, change, and leave at random; from time to time all examples are surveyed."""
    rng = np.random.default_rng(seed)
    count, problems = 30, int(rng.integers(1, 4))
    kernel = rng.normal(size=(count, count))
    kernel += kernel.T
    survey, alpha, example = Survey(problems, count), np.zeros((problems, 0)), np.zeros(0, np.int64)
    held = np.zeros(0, np.bool_)
    for _ in range(5):
        new = rng.permutation(np.setdiff1d(np.arange(count), example))[: rng.integers(0, 8)]
        example, alpha = np.concatenate([example, new]), np.hstack([alpha, np.zeros((problems, len(new)))])
        held = np.concatenate([held, np.zeros(len(new), np.bool_)])
        moved = rng.random(alpha.shape) < rng.random()
        alpha = np.where(moved, rng.normal(size=alpha.shape) * (rng.random(alpha.shape) < 0.7), alpha)
        survey.begin(alpha)
        change = survey.change(alpha)
        members = np.tile(alpha.any(axis=0) | (rng.random(len(example)) < 0.5), (problems, 1))
        outside = np.setdiff1d(np.arange(count), example[members[0]])
        exact = alpha @ kernel[example]
        np.testing.assert_allclose(survey.record(outside, change @ kernel[np.ix_(example, outside)]), exact[:, outside])
        sign = rng.choice([-1.0, 1.0], alpha.shape)
        survey.end(alpha, members, example, sign - exact[:, example], sign)
        held = survey.held_places(len(example))
        np.testing.assert_allclose(survey.margins, exact, atol=1e-9)
        assert np.array_equal(held, alpha.any(axis=0))
        assert not survey.change(alpha).any()
        # A place whose member is not held may get another member, with α = 0.
        stay = held | (rng.random(len(held)) < 0.5)
        example = np.where(stay, example, -1)
        free = np.setdiff1d(np.arange(count), example)[: np.count_nonzero(~stay)]
        example[np.flatnonzero(~stay)[: len(free)]] = free


def test_a_survey_is_made_where_it_computes_less():
    survey, weights = Survey(1, 100), np.ones((1, 40))
    survey.alpha = weights.copy()
    weights[0, :10] = 2.0
    assert survey.pays(weights, 60, None)
    border = int(60 * 10 / (WORTH * 40))
    assert not survey.pays(weights, 60, border)
    assert survey.pays(weights, 60, border + 1)


def test_what_is_remembered_is_exact(monkeypatch):
    """After each survey the decision values of all examples are compared with sums in float64."""
    X, rows = noisy()
    learner, found = converging(rows), []
    end = BlocksLearner._end_survey

    def watched(self):
        end(self)
        s = self.expansion
        used = np.flatnonzero(s.weights()[0])
        squared = ((X[:, None, :] - X[s.example[used]][None]) ** 2).sum(axis=2)
        exact = np.exp(-GAMMA * squared) @ s.weights()[0, used]
        found.append((np.abs(s.survey.margins[0] - exact).max(), s.survey.squares))
        s.check(1e-3)

    monkeypatch.setattr(BlocksLearner, "_end_survey", watched)
    run(learner, rows)
    assert learner.converged
    assert len(found) >= 3
    assert max(error for error, _ in found) < 1e-9
    assert found[1][1] > found[0][1], "the second survey was to add what has changed"


@pytest.mark.parametrize("problems", [1, 3])
def test_surveys_save_kernel_values_and_give_the_same_model(monkeypatch, problems):
    X, rows = noisy()
    y = rows.sign + (X[:, 2] > 1.0) * (problems > 1)
    models = []
    for pays in (Survey.pays, lambda *_: False):
        monkeypatch.setattr(Survey, "pays", pays)
        options = {"tol": 1e-4, "dtype": "float64", "random_state": 0}
        models.append(LaSVC(gamma=GAMMA, engine="blocks", epochs="converged", **options).fit(X, y))
    surveyed, scored = models
    assert surveyed.kernel_evaluations_ < scored.kernel_evaluations_
    np.testing.assert_allclose(surveyed.decision_function(X), scored.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("at_most", [1600, 2900, 10_000])
def test_a_budget_may_end_a_survey(at_most):
    """The run ends in time, and claims convergence only if it has converged."""
    X, rows = noisy()
    solver = LaSVC(gamma=GAMMA, engine="blocks", epochs="converged", random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(solver).set_params(max_examples=at_most).fit(X, rows.sign)
    assert model.history_[-1]["seen"] <= at_most
    assert caught or at_most > 1600
    assert not caught or at_most < 10_000
    if not caught:
        np.testing.assert_allclose(model.decision_function(X), solver.fit(X, rows.sign).decision_function(X), atol=2e-3)


def test_a_callback_may_stop_a_survey():
    X, rows = noisy()
    phases = []

    def stop(progress, seconds):
        phases.append(progress.phase)
        return progress.phase == "surveying"

    solver = LaSVC(gamma=GAMMA, engine="blocks", epochs="converged", random_state=0)
    model = train((X, rows.sign), solver, callbacks=[stop]).estimator
    assert "surveying" in phases
    assert phases[-1] == "done"
    assert model.score(X, rows.sign) > 0.8


def test_a_run_that_is_resumed_in_a_survey_gives_the_same_model():
    _, rows = noisy(dtype=np.float32)
    check_resumed_runs(lambda: converging(rows), rows, lambda progress: progress.phase == "surveying")
