"""URLs where only local paths are supported, and files that exist: refused, and nothing is made or replaced."""

import re
from pathlib import Path

import numpy as np
import pytest
import zarr

import dasksvm
from dasksvm import Dataset, KernelModel, LaSVC
from dasksvm.estimators.active.labelling import Answers
from dasksvm.model import prediction_files
from tests.helpers import blobs
from tests.models import some_model
from tests.test_cli import call

URL = "s3://bucket/deep/x"
LOST = re.escape("s3:/bucket/deep/x") + ".* looks like a URL that lost a slash"
REFUSED = re.escape(URL) + ".* is a URL, but only a local path can be used here"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Dataset.create(tmp_path_factory.mktemp("data") / "d.zarr", *blobs(60), chunk_rows=20, random_state=0)


def predictions(data, path):
    model = LaSVC(random_state=0).fit(data).model_
    prediction_files.write(model, data, path, threads=0, watch=lambda *_: None)


WAYS = {
    "model": lambda data, path: some_model(0)[0].save(path),
    "libsvm": lambda data, path: some_model(0, text=False, scaled=False, classes=2)[0].to_libsvm(path),
    "csv": lambda data, path: predictions(data, f"{path}.csv"),
    "parquet": lambda data, path: predictions(data, f"{path}.parquet"),
    "zarr": lambda data, path: predictions(data, f"{path}.zarr"),
    "checkpoint": lambda data, path: dasksvm.train(data, LaSVC(), checkpoint=path),
    "job": lambda data, path: dasksvm.submit(data, LaSVC(), checkpoint=path),
    "labels": lambda data, path: Answers(path, data),
    "load": lambda data, path: dasksvm.load(path),
    "from_libsvm": lambda data, path: KernelModel.from_libsvm(path),
    "source": lambda data, path: Dataset.create("d", f"{path}.csv"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_url_is_refused_where_only_local_paths_are_supported(way, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=REFUSED):
        WAYS[way](data, URL)
    with pytest.raises(ValueError, match=LOST):
        WAYS[way](data, Path(URL))
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_not_made_in_a_folder_called_s3(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (
        lambda: Dataset.create(Path(URL), *blobs(20)),
        lambda: Dataset.open(Path(URL)),
        lambda: LaSVC().fit(Path(URL)),
    ):
        with pytest.raises(ValueError, match=LOST):
            use()
    assert list(tmp_path.iterdir()) == []


def test_file_urls_are_local_paths(tmp_path, data):
    model, _ = some_model(0)
    model.save(f"file://{tmp_path}/model")
    assert np.array_equal(dasksvm.load(f"file://{tmp_path}/model").coefficients, model.coefficients)
    dasksvm.train(data, LaSVC(random_state=0), checkpoint=f"file://{tmp_path}/kept")
    predictions(data, f"file://{tmp_path}/out.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "kept", "out.csv"}
    assert Dataset.open(f"file://{data.path}").path == data.path


@pytest.mark.parametrize(
    "command",
    [
        ("train", URL, "model"),
        ("train", "{data}", URL),
        ("train", "{data}", "model", "--checkpoint", URL),
        ("predict", "{data}", "{model}", f"{URL}.csv"),
        ("predict", "{data}", "{model}", f"{URL}.zarr"),
        ("predict", "{data}", URL, "out.csv"),
        ("evaluate", URL, "{model}"),
        ("label", URL, "labels.csv"),
        ("label", "{data}", URL),
        ("info", URL),
        ("submit", URL, "--scheduler", "tcp://127.0.0.1:1"),
        ("fetch", "job", URL, "--scheduler", "tcp://127.0.0.1:1"),
        ("ingest", f"{URL}.csv", "data.zarr"),
    ],
    ids=" ".join,
)
def test_commands_refuse_urls_in_one_sentence(command, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"data": data.path, "model": f"{tmp_path}/known"}
    some_model(0)[0].save(known["model"])
    result = call(*(word.format(**known) for word in command))
    assert result.exit_code == 2, result.output
    assert re.search(REFUSED, " ".join(result.stderr.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["known"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "zarr"])
def test_predictions_that_exist_are_refused_before_anything_is_computed(suffix, data, tmp_path, monkeypatch):
    (tmp_path / f"link.{suffix}").symlink_to(tmp_path / "nowhere")
    (tmp_path / f"folder.{suffix}").mkdir()
    (tmp_path / f"file.{suffix}").write_text("theirs")
    some_model(0)[0].save(tmp_path / "model")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(KernelModel, "decision_function", None)
    for name in ("link", "folder", "file"):
        result = call("predict", data.path, tmp_path / "model", tmp_path / f"{name}.{suffix}")
        assert result.exit_code == 4, result.output
        assert result.stderr.splitlines() == [f"dasksvm: {tmp_path}/{name}.{suffix} already exists."]
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / f"file.{suffix}").read_text() == "theirs"


def test_predictions_do_not_replace_a_file_that_appears_while_they_are_computed(data, tmp_path):
    model = LaSVC(random_state=0).fit(data).model_
    out = tmp_path / "out.csv"
    with pytest.raises(FileExistsError, match=r"out\.csv already exists"):
        prediction_files.write(model, data, str(out), threads=0, watch=lambda *_: out.write_text("theirs"))
    assert out.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [out]


def test_predictions_have_all_their_chunks(data, tmp_path):
    """Zarr leaves out chunks of zeros, which cannot be told from chunks that are lost."""
    model = LaSVC(random_state=0).fit(data).model_
    one_sided = KernelModel(**{**vars(model), "intercepts": model.intercepts - 1e6})
    prediction_files.write(one_sided, data, str(tmp_path / "out.zarr"), threads=0, watch=lambda *_: None)
    label = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")["label"]
    assert label.nchunks_initialized == label.nchunks
    assert not label[:].any()
