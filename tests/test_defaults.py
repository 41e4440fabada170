"""What `LaSVC` chooses by itself: the engine, the passes and the memory."""

import numpy as np
import pytest

from dasksvm import LaSVC, config
from dasksvm.config import settings
from dasksvm.estimators._fitting import CACHE_SIZE, MEMORY_PART
from dasksvm.estimators.lasvc import MANY_EXAMPLES
from dasksvm.solver.blocks.learner import BlocksLearner
from dasksvm.solver.lasvm.learner import TwoClassLearner


def clean(n):
    """Two classes that are far apart."""
    y = np.arange(n) % 2
    return np.random.default_rng(0).normal(size=(n, 3)) + 3.0 * y[:, None], y


def noisy(n):
    X, y = clean(n)
    return X, np.where(np.random.default_rng(1).random(n) < 0.2, 1 - y, y)


def learner_of(model):
    return model._running[0]


def passes_of(model):
    return 1 + max(entry["epoch"] for entry in model.history_ if entry["phase"] == "online")


@pytest.mark.parametrize(
    ("examples", "given", "kind"),
    [
        (MANY_EXAMPLES, {}, TwoClassLearner),
        (MANY_EXAMPLES + 1, {}, BlocksLearner),
        (MANY_EXAMPLES, {"engine": "blocks"}, BlocksLearner),
        (MANY_EXAMPLES + 1, {"engine": "single"}, TwoClassLearner),
        (MANY_EXAMPLES + 1, {"reprocess": 2}, TwoClassLearner),
        (MANY_EXAMPLES + 1, {"selection": "gradient", "max_examples": 500}, TwoClassLearner),
        (MANY_EXAMPLES + 1, {"epochs": 3, "C": 2.0}, BlocksLearner),
    ],
)
def test_the_number_of_examples_and_the_parameters_choose_the_engine(examples, given, kind):
    assert type(learner_of(LaSVC(random_state=0, **given).fit(*clean(examples)))) is kind


def test_partial_fit_decides_by_its_first_block():
    X, y = clean(MANY_EXAMPLES + 1)
    model = LaSVC(random_state=0).partial_fit(X[:100], y[:100], classes=[0, 1])
    assert type(learner_of(model.partial_fit(X, y))) is TwoClassLearner
    model = LaSVC(random_state=0).partial_fit(X, y, classes=[0, 1])
    assert type(learner_of(model.partial_fit(X[:100], y[:100]))) is BlocksLearner
    assert passes_of(model) == 1


@pytest.mark.parametrize(
    ("data", "given", "passes"),
    [
        (noisy, {}, 2),
        (clean, {"C": 1e6}, 1),
        (clean, {"C": 1e6, "epochs": 2}, 2),
        (noisy, {"engine": "single"}, 1),
        (noisy, {"epochs": 3}, 3),
    ],
)
def test_noisy_labels_get_a_second_pass_in_blocks(data, given, passes):
    """With a large C and clean labels hardly any support vector is at its bound."""
    assert passes_of(LaSVC(random_state=0, **given).fit(*data(MANY_EXAMPLES + 1))) == passes


def test_jobs_plan_the_passes_that_will_be_made():
    assert LaSVC()._most_passes(MANY_EXAMPLES) == 1
    assert LaSVC()._most_passes(MANY_EXAMPLES + 1) == 2
    assert LaSVC(epochs=3)._most_passes(10**6) == 3
    assert LaSVC(epochs="converged")._most_passes(10**6) == 1


@pytest.mark.parametrize(("given", "expected"), [({}, 300 << 20), ({"cache_size": 7}, 7 << 20)])
def test_kernel_values_may_use_a_part_of_the_memory(monkeypatch, given, expected):
    monkeypatch.setattr(config, "memory", lambda: MEMORY_PART * (300 << 20))
    learner = learner_of(LaSVC(engine="blocks", random_state=0, **given).fit(*clean(200)))
    assert learner.expansion.kernel_values.budget == expected


def test_single_steps_have_a_fixed_budget(monkeypatch):
    """Their models depend on it in the last bits, and so must not depend on the machine."""
    monkeypatch.setattr(config, "memory", lambda: 1 << 20)
    model = LaSVC(random_state=0).fit(*clean(200))
    assert learner_of(model).expansion.cache_bytes == CACHE_SIZE << 20


def test_the_memory_is_that_of_the_machine_or_of_its_control_group(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "LIMITS", (tmp_path / "new", tmp_path / "old"))
    machine = settings.memory()
    assert machine > 100 << 20
    (tmp_path / "new").write_text("max\n")
    assert settings.memory() == machine
    (tmp_path / "new").write_text("104857600\n")
    assert settings.memory() == 100 << 20
    (tmp_path / "old").write_text("52428800\n")
    assert settings.memory() == 50 << 20
