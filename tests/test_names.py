"""Options that have a name: one that is registered without the code that it needs is an error, and never works as another one."""

import re
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from dasksvm import (
    SMOSVC,
    ActiveLearner,
    Dataset,
    GapSVC,
    KernelModel,
    LaSVC,
    MulticlassSVC,
    ShiftingGridSearch,
    TrackingSVC,
)
from dasksvm.cli.output import model_facts
from dasksvm.data.ingest.readers.files import npy_reader
from dasksvm.data.ingest.readers.formats import FORMATS as FILE_FORMATS
from dasksvm.data.ingest.readers.reader import FileFormat
from dasksvm.data.scales import SCALES
from dasksvm.data.statistics import FeatureStatistics, Scaling
from dasksvm.estimators._fitting import AUTO, DTYPES, EPOCHS, GAMMAS, SHAPES
from dasksvm.estimators.active.learner import criteria_without_labels
from dasksvm.estimators.gapsvc import VARIANTS
from dasksvm.estimators.lasvc import ENGINES
from dasksvm.estimators.parameters import one_of
from dasksvm.model.formats import FORMATS as MODEL_FORMATS
from dasksvm.model.libsvm import WITHOUT_SCALING, without_scaling
from dasksvm.solver.decomposition import pair_state
from dasksvm.solver.decomposition.pair_steps import _by_maximum_gain, _rows_to_search
from dasksvm.solver.decomposition.rules import SELECTIONS, STOPS, BlockRules, PairRules
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.criterion import Criterion
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import Choice, ScorePlan, Targets, View
from dasksvm.solver.multiclass import steps
from dasksvm.solver.multiclass.structure import MACHINES
from dasksvm.solver.state import capture
from pipelines import compare, ingest, robust, tasks
from tests.helpers import COMMON, blobs, decomposing, kernel_matrix

NEW = "new"


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (LaSVC(), "kernel"),
        (LaSVC(), "gamma"),
        (LaSVC(), "epochs"),
        (LaSVC(), "selection"),
        (LaSVC(), "decision_function_shape"),
        (LaSVC(), "dtype"),
        (LaSVC(), "class_weight"),
        (SMOSVC(), "kernel"),
        (SMOSVC(), "working_set"),
        (SMOSVC(working_set_size=2), "working_set"),
        (SMOSVC(), "stop"),
        (SMOSVC(working_set_size=2), "stop"),
        (GapSVC(), "variant"),
        (TrackingSVC(), "gradients"),
        (TrackingSVC(), "solver"),
        (MulticlassSVC(), "machine"),
        (MulticlassSVC(), "solver"),
        (MulticlassSVC(), "working_set"),
        (MulticlassSVC(), "schedule"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_estimator_refuses_a_name_that_only_its_check_knows(estimator, name, monkeypatch):
    X, y = blobs(60)
    rules = type(estimator)._parameter_rules
    monkeypatch.setattr(type(estimator), "_parameter_rules", rules | {name: one_of(NEW)})
    with pytest.raises(ValueError, match=f"'{NEW}'"):
        type(estimator)(**(estimator.get_params() | {name: NEW})).fit(X, y)


@pytest.mark.parametrize("selected", ["mvp", "hmg"])
def test_every_registered_selection_and_stop_has_its_number(selected):
    assert tuple(pair_state.SELECTION_NUMBERS) == SELECTIONS
    assert tuple(pair_state.BY_GAIN) == STOPS
    rules = PairRules(selected, "kkt", True, 1000, 2)
    assert pair_state.pair_choice(rules, 0.1).selection == pair_state.SELECTION_NUMBERS[selected]


@pytest.mark.parametrize("rows", [-1, 3, 4])
def test_maximum_gain_searches_no_more_rows_than_it_has(rows):
    with pytest.raises(ValueError, match=f"1 or 2. Got {rows} instead"):
        pair_state.pair_choice(PairRules("hmg", "kkt", True, 1000, rows), 1e-3)
    with pytest.raises(ValueError, match="searches one row, two, or all"):
        _rows_to_search.py_func(None, np.zeros(pair_state.FIELDS, np.int64), rows)


def test_jitted_dispatches_refuse_numbers_of_nobody():
    now = pair_state.PairChoice(len(pair_state.SELECTION_NUMBERS), False, 2, 1e-3)
    with pytest.raises(ValueError, match="unknown working set selection"):
        _by_maximum_gain.py_func(None, now)
    w = type("Members", (), {"counts": np.ones(1, np.int64)})
    with pytest.raises(ValueError, match="unknown strategy"):
        steps.first_variable.py_func(w, None, None, steps.TWO_OLD, 3, -1, 0.0)
    with pytest.raises(ValueError, match="unknown kind of step"):
        steps.first_variable.py_func(w, None, None, 4, steps.S2DO_ALL, 0, 0.0)
    with pytest.raises(ValueError, match="unknown kind of step"):
        steps.larank_pair.py_func(w, None, 3, 0)


@pytest.mark.parametrize(
    ("kind", "solver", "name", "value"),
    [
        (MulticlassSVC, "batch", "working_set", "all"),
        (MulticlassSVC, "batch", "schedule", "fixed"),
        (MulticlassSVC, "batch", "old_new", True),
        (MulticlassSVC, "larank", "working_set", "within-pattern"),
        (MulticlassSVC, "larank", "old_new", True),
        (TrackingSVC, "batch", "process", False),
        (TrackingSVC, "batch", "average", False),
        (TrackingSVC, "batch", "gradients", "all"),
    ],
)
def test_a_parameter_that_a_solver_ignores_is_refused(kind, solver, name, value):
    X, y = blobs(60)
    model = kind(solver=solver, **{name: value})
    with pytest.raises(
        ValueError, match=f"The '{name}' parameter of {kind.__name__} has no effect with solver='{solver}'"
    ):
        model.fit(X, y)
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        model.partial_fit(X, y, classes=[-1, 1])


# Kernels


def test_a_kernel_without_a_formula_computes_nothing():
    rows, kernel = DenseFeatures.of(np.eye(3)), Kernel(NEW)
    for compute in (kernel.diagonal, lambda rows: kernel.tile(rows, rows)):
        with pytest.raises(
            ValueError, match=f"unknown kernel '{NEW}': it must be one of linear, poly, rbf, sigmoid, laplacian"
        ):
            compute(rows)
    with pytest.raises(ValueError, match=f"kernel '{NEW}'"):
        kernel_matrix(NEW, np.eye(2), np.eye(2), 1.0, 0.0, 3)


def test_what_is_said_of_a_kernel_is_true(rng):
    """The properties that others rely on: K(x, x), and whether a shift of all rows changes anything."""
    X = rng.normal(size=(6, 3))
    for name, formula in KERNELS.items():
        kernel = Kernel(name, 0.5, 1.0, 2)
        here, there = (kernel.tile(DenseFeatures.of(rows), DenseFeatures.of(rows)) for rows in (X, X + 2.0))
        assert np.allclose(here, there) == formula.shift_invariant
        assert np.allclose(np.diagonal(here), 1.0) == formula.unit_diagonal
        for parameter in ("gamma", "coef0", "degree"):
            other = Kernel(**({"name": name, "gamma": 0.5, "coef0": 1.0, "degree": 2} | {parameter: 3}))
            changed = not np.allclose(other.tile(DenseFeatures.of(X), DenseFeatures.of(X)), here)
            assert changed == (parameter in formula.parameters)


def test_a_model_of_a_kernel_that_others_do_not_know(tmp_path, monkeypatch):
    model = KernelModel(Kernel(NEW), np.eye(2), np.ones((1, 2)), np.zeros(1), np.array([0, 1]))
    with pytest.raises(ValueError, match=f"kernel '{NEW}'"):
        model.to_libsvm(tmp_path / "model")
    with pytest.raises(ValueError, match=f"'{NEW}'"):
        model.predict(np.eye(2))
    with pytest.raises(ValueError, match=f"'{NEW}'"):
        model_facts(model, "model")
    scaled = KernelModel(
        Kernel(NEW), np.eye(2), np.ones((1, 2)), np.zeros(1), np.array([0, 1]), Scaling(np.zeros(2), np.full(2, 2.0))
    )
    with pytest.raises(ValueError, match=f"kernel '{NEW}'"):
        without_scaling(scaled)
    unknown_there = next(name for name, formula in KERNELS.items() if formula.libsvm is None)
    with pytest.raises(ValueError, match=f"scaling cannot be included in a model with kernel '{unknown_there}'"):
        without_scaling(replace(scaled, kernel=Kernel(unknown_there)))


def test_a_scaling_is_known_for_every_kernel_of_libsvm():
    assert set(WITHOUT_SCALING) == {formula.libsvm.name for formula in KERNELS.values() if formula.libsvm}


def test_a_search_knows_which_kernels_have_a_width(monkeypatch):
    X, y = blobs(40)
    monkeypatch.setitem(KERNELS, NEW, KERNELS["linear"])
    search = ShiftingGridSearch(LaSVC(kernel=NEW, random_state=0), C=[1.0], random_state=0)
    assert "gamma" not in search.fit(X, y).best_params_


# Selection


def _farthest(decision, sign):
    return -np.abs(decision)


def plan(criterion):
    members = DenseFeatures.of(np.array([[1.0], [-1.0]]))
    view = View(
        version=0,
        generation=0,
        members=members,
        order=np.arange(2),
        alpha=np.array([[1.0, -1.0]]),
        top=np.ones(1),
        bottom=-np.ones(1),
        needed_classes=np.ones((1, 2), np.bool_),
        slack=np.full(1, np.inf),
        tau=1e-3,
    )
    return ScorePlan(0, np.arange(4), view, Choice(criterion, 4, 1))


def chosen(criterion):
    X = np.array([[0.5], [-3.0], [0.1], [-0.2]])
    targets = Targets(np.ones(4, np.int64), np.ones((1, 4)), np.ones((1, 4)))
    return execute(plan(criterion), Kernel("linear"), DenseFeatures.of(X), targets, Workspace()).examples.tolist()


# Which example each criterion chooses of those with the decision values 1, -6, 0.2 and -0.4, which all have the label 1.
CHOSEN = {"gradient": 1, "active": 2, "autoactive": 2}


def test_a_criterion_chooses_by_its_own_measure(monkeypatch):
    assert set(CHOSEN) == {name for name, criterion in CRITERIA.items() if criterion.measure is not None}
    for name, example in CHOSEN.items():
        assert chosen(name) == [example]
    for criterion in (NEW, "random"):
        with pytest.raises(ValueError, match=f"selection criterion '{criterion}'"):
            chosen(criterion)
    with pytest.raises(ValueError, match=f"selection criterion '{NEW}'"):
        _ = Selection(NEW).largest_pool
    monkeypatch.setitem(CRITERIA, "farthest", Criterion(_farthest, labels=False, adaptive=False))
    assert chosen("farthest") == [1]


@pytest.mark.parametrize("candidates", ["all", 400])
def test_queries_follow_the_criterion(candidates, monkeypatch):
    X, y = blobs(400)
    with pytest.raises(ValueError, match=f"'selection' parameter .* Got '{NEW}'"):
        ActiveLearner(LaSVC(random_state=0), X, selection=NEW, candidates=candidates)
    monkeypatch.setitem(CRITERIA, "farthest", Criterion(_farthest, labels=False, adaptive=False))
    learner = ActiveLearner(LaSVC(random_state=0), X, selection="farthest", candidates=candidates)
    taught = np.concatenate([np.flatnonzero(y == label)[:10] for label in (-1, 1)])
    learner.teach(taught, y[taught])
    distance = np.abs(learner.decision_function(X))
    distance[taught] = -1.0
    assert learner.query(1)[0] == np.argmax(distance)


def test_queries_offer_the_criteria_that_need_no_labels():
    offered = set(criteria_without_labels())
    assert {"random", "active"} <= offered
    assert offered == set(CRITERIA) - {name for name, criterion in CRITERIA.items() if criterion.labels}


def test_a_criterion_is_one_object_and_one_registration(monkeypatch):
    """What trains with it: a batch solver's first choice aside, examples far from the boundary come first."""
    X, y = blobs(300)
    options = {"max_examples": 60, "candidates": 20, "random_state": 0}
    with pytest.raises(ValueError, match="'selection' parameter"):
        LaSVC(selection="farthest", **options).fit(X, y)
    monkeypatch.setitem(CRITERIA, "farthest", Criterion(_farthest, labels=False, adaptive=False))
    near, far = (LaSVC(selection=name, **options).fit(X, y) for name in ("active", "farthest"))
    assert far.history_[-1]["seen"] == near.history_[-1]["seen"]
    reference = LaSVC(random_state=0).fit(X, y)
    distance = {model: np.abs(reference.decision_function(X[model.support_])).mean() for model in (near, far)}
    assert distance[far] > distance[near]


# Registries


@pytest.mark.parametrize(
    "table", [KERNELS, CRITERIA, FILE_FORMATS, SCALES, MODEL_FORMATS], ids=lambda table: table.kind
)
def test_every_registered_name_has_an_object(table):
    assert len(dict(table)) == len(table) > 1
    with pytest.raises(ValueError, match=f"unknown {table.kind} '{NEW}': it must be one of {', '.join(table)}"):
        table.find(NEW)


@pytest.mark.parametrize(
    ("documented", "parameter", "names"),
    [
        *((kind, "kernel", KERNELS) for kind in (LaSVC, SMOSVC, GapSVC, TrackingSVC, MulticlassSVC)),
        *((kind, "selection", CRITERIA) for kind in (LaSVC, GapSVC, TrackingSVC)),
        (ActiveLearner, "selection", criteria_without_labels()),
        (Dataset.create, "scale", SCALES),
        (LaSVC, "epochs", {AUTO, *EPOCHS}),
        (LaSVC, "engine", {AUTO, *ENGINES}),
        (LaSVC, "cache_size", {AUTO}),
        (MulticlassSVC, "epochs", EPOCHS),
        *((kind, "decision_function_shape", SHAPES) for kind in (LaSVC, SMOSVC, GapSVC, TrackingSVC)),
        *((kind, "dtype", DTYPES) for kind in (LaSVC, SMOSVC, GapSVC, TrackingSVC, MulticlassSVC)),
        *((kind, "gamma", GAMMAS) for kind in (LaSVC, SMOSVC, GapSVC, TrackingSVC, MulticlassSVC)),
        (GapSVC, "variant", VARIANTS),
        (SMOSVC, "working_set", SELECTIONS),
        (SMOSVC, "stop", STOPS),
        (MulticlassSVC, "machine", MACHINES),
    ],
    ids=lambda value: getattr(value, "__name__", value) if not isinstance(value, str) else value,
)
def test_docstrings_name_every_choice(documented, parameter, names):
    """The first line of a parameter lists all of its words, and no others, before its default."""
    (line,) = re.findall(rf"^\s*{parameter} : (.*)$", documented.__doc__, re.M)
    assert set(re.findall(r'"([^"]*)"', line.partition("default=")[0])) == set(names)


# Data


def test_a_file_format_is_one_object_and_one_registration(tmp_path, monkeypatch):
    X, y = blobs(20)
    path = tmp_path / "rows.array"
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(ValueError, match="does not show the format"):
        Dataset.create(tmp_path / "data", path, y)
    with pytest.raises(ValueError, match=f"format must be one of .* Got '{NEW}'"):
        Dataset.create(tmp_path / "data", path, y, format=NEW)
    assert not (tmp_path / "data").exists()
    ours = FileFormat((".array",), False, lambda path, y, weight, how: npy_reader(path, y, weight))
    monkeypatch.setitem(FILE_FORMATS, NEW, ours)
    assert len(Dataset.create(tmp_path / "data", path, y)) == 20


def test_a_scale_without_a_map_is_refused(tmp_path):
    X, y = blobs(20)
    with pytest.raises(ValueError, match=f"scale must be one of .* Got '{NEW}'"):
        Dataset.create(tmp_path / "data", X, y, scale=NEW)
    assert not (tmp_path / "data").exists()
    with pytest.raises(ValueError, match=f"unknown scale '{NEW}'"):
        FeatureStatistics.empty(3).scaling(NEW, sparse=False)


# State


def test_features_of_an_unknown_kind_are_not_read():
    with pytest.raises(ValueError, match=f"unknown kind '{NEW}'"):
        capture.read_features({"feature_kind": NEW})


def test_settings_of_no_solver_are_refused():
    with pytest.raises(TypeError, match="no solver has settings of type Settings: it must be one of LasvmSettings, "):
        make_learner(Settings(kernel=Kernel("rbf"), **COMMON))


def test_only_known_phases_are_followed_by_others():
    learner = make_learner(decomposing(Kernel("rbf"), BlockRules("mvp", True, 1000)))
    for phase in ("idle", "seeding", "done", NEW):
        learner.phase = phase
        with pytest.raises(ValueError, match=f"nothing follows the phase '{phase}'"):
            learner._begin_next_phase()


# Pipelines


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda task: compare.make(NEW, task, 10, 0), click.UsageError),
        (lambda task: compare.make("lasvc-other", task, 10, 0), click.UsageError),
        (lambda task: robust.solver(NEW, task, 0, 10.0), click.UsageError),
        (lambda task: ingest._write(NEW, Path("nowhere"), np.eye(2, dtype=np.float32), np.arange(2)), click.UsageError),
        (lambda task: tasks.load(NEW, Path("nowhere")), ValueError),
        (lambda task: tasks.load(f"{NEW}-100", Path("nowhere")), ValueError),
    ],
)
def test_pipelines_refuse_names_of_nobody(make, error):
    X, y = blobs(4)
    with pytest.raises(error, match=NEW + "|lasvc-other"):
        make(tasks.Task("banana", X.astype(np.float32), y, X, y, {"C": 1.0, "gamma": 1.0}))
