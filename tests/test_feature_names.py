"""Columns are matched to those of a model by their names, and never taken for others."""

import csv
from dataclasses import replace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dasksvm
from dasksvm import ActiveLearner, Dataset, HeldOut, KernelModel, LaSVC, MulticlassSVC, train
from dasksvm.data import array_file
from dasksvm.model.native import KIND, VERSION
from dasksvm.solver.kernels.kernel import Kernel
from tests.models import some_model
from tests.test_cli import call, told

NAMES = ["height", "width", "depth", "mass"]
# Other columns than the training's, and what an error must say of them.
OTHERS = {
    "renamed": (["height", "width", "depth", "weight"], r"Missing: 'mass'; not expected: 'weight'\."),
    "one less": (["height", "width", "depth"], r"Missing: 'mass'\."),
    "one more": ([*NAMES, "age"], r"Not expected: 'age'\."),
    "twice": (["height", "width", "depth", "mass", "mass"], "several columns have the same name"),
}
ORDER = [2, 0, 3, 1]
TURNED = [NAMES[at] for at in ORDER]


def rows(n=160, seed=0):
    """Rows in which each column is at another place, and the class depends on the first one."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, 4)) + 2.0 * np.arange(4)).astype("f4")
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, "up", "down")


def frame_of(X, names):
    return pd.DataFrame(X, columns=names)


def data_of(path, X, y, names, *, sparse=False, scale="none"):
    """A data set with names; rows in CSR only have them in AnnData files, and get them here."""
    options = {"chunk_rows": 50, "random_state": 0, "scale": scale}
    if not sparse:
        return Dataset.create(path, dd.from_pandas(frame_of(X, names).assign(label=y), 3), "label", **options)
    return replace(Dataset.create(path, sp.csr_matrix(X), y, **options), names=names)


def write_csv(path, X, y, names):
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*names, "label"])
        table.writerows([*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True))
    return path


def test_a_csv_file_with_its_columns_in_another_order_is_predicted_as_in_the_first_one(tmp_path):
    X, y = rows()
    for name, turned in (("train", False), ("test", True)):
        table = (X[:, ORDER], y, TURNED) if turned else (X, y, NAMES)
        source = write_csv(tmp_path / f"{name}.csv", *table)
        assert call("ingest", source, tmp_path / f"{name}.zarr", "--scale", "standard").exit_code == 0
    model = tmp_path / "model"
    assert call("train", tmp_path / "train.zarr", model, "-c", 10).exit_code == 0
    found = {name: told("evaluate", tmp_path / f"{name}.zarr", model) for name in ("train", "test")}
    assert found["train"]["error"] < 0.2
    assert {name: each["confusion"] for name, each in found.items()} == dict.fromkeys(
        found, found["train"]["confusion"]
    )
    for name in ("train", "test"):
        assert call("predict", tmp_path / f"{name}.zarr", model, tmp_path / f"{name}.out.csv").exit_code == 0
    assert (tmp_path / "train.out.csv").read_text() == (tmp_path / "test.out.csv").read_text()
    assert told("info", model)["names"] == NAMES
    assert "features          height, width, depth, mass" in call("info", model).output


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_csv_file_with_other_columns_is_refused(command, tmp_path):
    X, y = rows()
    model = tmp_path / "model"
    LaSVC(random_state=0).fit(data_of(tmp_path / "data.zarr", X, y, NAMES)).model_.save(model)
    source = write_csv(tmp_path / "test.csv", X, y, OTHERS["renamed"][0])
    assert call("ingest", source, tmp_path / "test.zarr").exit_code == 0
    out = [tmp_path / "out.csv"] if command == "predict" else []
    result = call(command, tmp_path / "test.zarr", model, *out)
    assert result.exit_code == 4
    told = f"the features of {tmp_path}/test.zarr are not the same as those of the training data"
    assert f"dasksvm: {told}. Missing: 'mass'; not expected: 'weight'." in result.stderr.splitlines()
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_data_set_is_matched_by_name_in_all_that_an_estimator_does(sparse, tmp_path):
    X, y = rows()
    X = np.abs(np.round(X)) if sparse else X
    data = data_of(tmp_path / "data.zarr", X, y, NAMES, sparse=sparse, scale="none" if sparse else "minmax")
    turned = data_of(
        tmp_path / "turned.zarr", X[:, ORDER], y, TURNED, sparse=sparse, scale="none" if sparse else "minmax"
    )
    fitted = LaSVC(C=10, random_state=0).fit(data)
    assert fitted.feature_names_in_.tolist() == NAMES
    assert fitted.model_.feature_names == tuple(NAMES)
    for method in ("decision_function", "predict"):
        expected = getattr(fitted, method)(data).compute()
        for given in (turned,) if sparse else (turned, turned.path):
            assert np.array_equal(getattr(fitted, method)(given).compute(), expected)
    assert fitted.score(turned) == fitted.score(data) != fitted.score(*turned.as_dask())
    found, expected = (fitted.certificate(given) for given in (turned, data))
    assert (found.primal, found.dual, found.rows.tolist()) == (expected.primal, expected.dual, expected.rows.tolist())
    once, again = (LaSVC(C=10, random_state=0).fit(data).partial_fit(second) for second in (data, turned))
    assert np.array_equal(once.dual_coef_, again.dual_coef_)


@pytest.mark.parametrize("case", OTHERS)
def test_other_columns_are_refused_and_the_error_names_them(case, tmp_path):
    names, told = OTHERS[case]
    X, y = rows(60)
    fitted = LaSVC(random_state=0).fit(data_of(tmp_path / "data.zarr", X, y, NAMES))
    other = Dataset.open(data_of(tmp_path / "other.zarr", np.zeros((60, 4)), y, list("abcd")).path)
    object.__setattr__(other, "names", names)
    frame = frame_of(np.zeros((60, len(names))), names)
    for ask in (
        *(fitted.predict, fitted.decision_function, fitted.score, fitted.certificate, fitted.partial_fit),
        *(fitted.model_.predict, fitted.model_.decision_function),
    ):
        with pytest.raises(ValueError, match=f"the features of .*other.zarr are .*{told}"):
            ask(other)
    with pytest.raises(ValueError, match=f"the features of X are .*{told}"):
        fitted.model_.predict(frame)


def test_a_model_matches_the_columns_of_dataframes(tmp_path):
    X, y = rows()
    model = LaSVC(C=10, random_state=0).fit(data_of(tmp_path / "data.zarr", X, y, NAMES)).model_
    turned = frame_of(X[:, ORDER], TURNED)
    for method in (model.decision_function, model.predict):
        expected = method(X)
        assert np.array_equal(method(turned), expected)
        assert np.array_equal(method(frame_of(X, NAMES)), expected)
        lazy = method(dd.from_pandas(turned, 3))
        assert np.array_equal(lazy.compute(), expected)
        # Numbers as names say nothing of the order.
        assert np.array_equal(method(pd.DataFrame(X)), expected)
    with pytest.raises(ValueError, match="several columns have the same name"):
        model.predict(frame_of(np.c_[X, X[:, 0]], [*NAMES, "mass"]))


def test_rows_without_names_go_with_any_model_of_so_many_features(tmp_path):
    X, y = rows()
    named = LaSVC(C=10, random_state=0).fit(data_of(tmp_path / "data.zarr", X, y, NAMES))
    bare = Dataset.create(tmp_path / "bare.zarr", X, y, chunk_rows=50, random_state=0)
    assert bare.names is None
    assert np.array_equal(named.predict(bare).compute(), named.model_.predict(X)[bare.source_rows(np.arange(160))])
    unnamed = LaSVC(C=10, random_state=0).fit(bare)
    assert not hasattr(unnamed, "feature_names_in_")
    assert unnamed.model_.feature_names is None
    turned = data_of(tmp_path / "turned.zarr", X, y, TURNED)
    assert unnamed.score(turned) == unnamed.score(bare)
    # A new fit without names leaves none of those before.
    assert not hasattr(named.fit(bare), "feature_names_in_")


def test_dataframes_of_estimators_are_treated_as_scikit_learn_does(tmp_path):
    X, y = rows()
    for fitted in (LaSVC(random_state=0).fit(frame_of(X, NAMES), y), LaSVC(random_state=0)):
        if not hasattr(fitted, "model_"):
            fitted.fit(data_of(tmp_path / "data.zarr", X, y, NAMES))
        assert fitted.predict(frame_of(X, NAMES)).shape == (160,)
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            fitted.predict(frame_of(X[:, ORDER], TURNED))
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            fitted.predict(X)
        turned = data_of(tmp_path / f"turned-{id(fitted)}.zarr", X[:, ORDER], y, TURNED)
        assert fitted.score(turned) == fitted.score(frame_of(X, NAMES), y)


def test_held_out_rows_are_matched_by_name(tmp_path):
    X, y = rows(400)
    data = data_of(tmp_path / "data.zarr", X[:200], y[:200], NAMES)
    estimator = MulticlassSVC(C=10, random_state=0)
    held = {
        "as trained": HeldOut(frame_of(X[200:], NAMES), y[200:], every=50),
        "turned": HeldOut(frame_of(X[200:][:, ORDER], TURNED), y[200:], every=50),
        "stored": HeldOut(data_of(tmp_path / "t.zarr", X[200:][:, ORDER], y[200:], TURNED), every=50),
        "bare": HeldOut(X[200:], y[200:], every=50),
    }
    train(data, estimator, callbacks=list(held.values()))
    errors = {name: [entry["error"] for entry in each.entries] for name, each in held.items()}
    assert errors == dict.fromkeys(held, errors["as trained"])
    for other in (HeldOut(frame_of(X, OTHERS["renamed"][0]), y), data_of(tmp_path / "o.zarr", X, y, list("abcd"))):
        with pytest.raises(ValueError, match="Missing"):
            train(data, estimator, callbacks=[other if isinstance(other, HeldOut) else HeldOut(other)])


def test_the_model_of_a_pool_has_its_names(tmp_path):
    X, y = rows()
    data = data_of(tmp_path / "data.zarr", X, y, NAMES)
    for pool in (data, frame_of(X, NAMES)):
        learner = ActiveLearner(LaSVC(random_state=0), pool, first=2)
        learner.teach(np.arange(40), y[:40])
        assert learner.model_.feature_names == tuple(NAMES)
        assert learner.estimator_.feature_names_in_.tolist() == NAMES


def test_a_run_is_not_resumed_on_columns_in_another_order(tmp_path):
    X, y = rows()
    # Without a centre, which tells columns apart by their means.
    estimator = LaSVC(kernel="linear", gamma=1.0, random_state=0)
    train(
        data_of(tmp_path / "a.zarr", X, y, NAMES), estimator, checkpoint=tmp_path / "kept", callbacks=[lambda *_: True]
    )
    with pytest.raises(RuntimeError, match="another run, which differs from this one in feature_names"):
        train(data_of(tmp_path / "b.zarr", X, y, TURNED), estimator, checkpoint=tmp_path / "kept", resume=True)


def test_names_are_in_the_model_file(tmp_path):
    model, X = some_model(1)
    awkward = ("", "a\0", "\ud800", "ß\n")[: model.width] + tuple(str(at) for at in range(4, model.width))
    for names in (None, awkward):
        KernelModel(**{**model.__getstate__(), "feature_names": names}).save(tmp_path / "model")
        again = dasksvm.load(tmp_path / "model")
        assert again.feature_names == names
        assert np.array_equal(again.predict(X), model.predict(X))


def test_names_go_to_scikit_learn_and_back(tmp_path):
    X, y = rows()
    for scale in ("none", "standard"):
        model = LaSVC(C=10, random_state=0).fit(data_of(tmp_path / f"{scale}.zarr", X, y, NAMES, scale=scale)).model_
        theirs = model.to_sklearn()
        assert theirs.feature_names_in_.tolist() == NAMES
        assert np.array_equal(theirs.predict(frame_of(X, NAMES)), model.predict(X))
        with pytest.raises(ValueError, match="same order"):
            theirs.predict(frame_of(X[:, ORDER], TURNED))
        assert KernelModel.from_sklearn(theirs).feature_names == tuple(NAMES)


@pytest.mark.parametrize(
    "names",
    [b'["a"]', b'["a", 2]', b'{"a": 1}', b"[" * 100_000, b"\xff", [1.0, 2.0]],
    ids=["too few", "number", "dict", "deep", "bytes", "floats"],
)
def test_a_model_file_with_damaged_names_is_refused(names, tmp_path):
    model = KernelModel(Kernel("rbf"), np.eye(2), np.ones((1, 2)), np.zeros(1), np.arange(2), None, False, ("a", "b"))
    model.save(tmp_path / "model")
    about, arrays = array_file.read(tmp_path / "model", KIND, (VERSION,))
    arrays["feature_names"] = np.array(names) if isinstance(names, list) else np.frombuffer(names, np.uint8)
    array_file.write(tmp_path / "model", KIND, VERSION, about, arrays)
    with pytest.raises(ValueError, match="is not a valid dasksvm model: its feature names"):
        dasksvm.load(tmp_path / "model")
