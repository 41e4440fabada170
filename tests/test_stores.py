"""Data sets at URLs: nothing that exists is replaced or deleted, and nothing that is lost is made up."""

import asyncio
import time

import dask.array as da
import fsspec
import numpy as np
import pytest
import scipy.sparse as sp
from moto.server import ThreadedMotoServer
from zarr.storage import FsspecStore

from dasksvm import Dataset, LaSVC
from dasksvm.data import stored
from tests.clusters import cluster, quick
from tests.helpers import blobs
from tests.test_cli import call, told

SPARSE = ("data", "indices", "indptr")
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@pytest.fixture(scope="session")
def server():
    """An S3 server in this process. fsspec keeps its connections, so it stays where it is until the end."""
    made = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    made.start()
    yield "http://{}:{}".format(*made.get_host_and_port())
    made.stop()


@pytest.fixture
def s3(server, monkeypatch):
    """The URL of a bucket."""
    for name, value in (SETTINGS | {"AWS_ENDPOINT_URL": server}).items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").makedirs("bucket", exist_ok=True)
    return "s3://bucket"


@pytest.fixture(params=["file", "memory", "s3"])
def folder(request, tmp_path):
    """The URL of a place for files, of each kind of store."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return f"{request.param}://{tmp_path}"


def put(url, content=b"theirs"):
    fs, path = fsspec.url_to_fs(url, **({"auto_mkdir": True} if url.startswith("file") else {}))
    fs.pipe_file(path, content)


def files(url):
    """Every file below a URL with its content, by its path from there."""
    fs, path = fsspec.url_to_fs(url)
    fs.invalidate_cache()
    return {name.removeprefix(f"{path}/"): fs.cat_file(name) for name in fs.find(path)}


def lose(url):
    fs, path = fsspec.url_to_fs(url)
    fs.rm_file(path)


def rows(count=60):
    X, y = blobs(count)
    return np.clip(128 + 20 * X, 0, 255).astype(np.uint8), np.where(y > 0, "yes", "no")


def test_a_target_that_exists_is_refused_and_left_alone(folder, tmp_path):
    target = f"{folder}/d.zarr"
    put(f"{target}/deep/down/notes.txt")
    before = files(folder)
    with pytest.raises(FileExistsError, match=r"d\.zarr already exists"):
        Dataset.create(target, *rows())
    assert files(folder) == before
    csv = tmp_path / "x.csv"
    csv.write_text("a,b,label\n1,2,x\n3,5,y\n")
    result = call("ingest", csv, target, "--workers", 0)
    assert result.exit_code == 4, result.output
    assert result.stderr.splitlines()[-1].endswith("d.zarr already exists.")
    assert {name: content for name, content in files(folder).items() if name != "x.csv"} == before


def test_ingest_tells_how_many_bytes_are_stored(folder, tmp_path):
    (tmp_path / "x.csv").write_text("a,b,label\n" + "1,2,x\n3,5,y\n" * 50)
    said = told("ingest", tmp_path / "x.csv", f"{folder}/d.zarr", "--workers", 0)
    assert said["rows"] == 100
    assert said["bytes"] == sum(len(content) for content in files(f"{folder}/d.zarr").values()) > 1000


def test_a_data_set_that_exists_is_refused_and_left_alone(folder):
    target = f"{folder}/d.zarr"
    first = Dataset.create(target, *rows(), random_state=0)
    before = files(folder)
    with pytest.raises(FileExistsError, match=r"d\.zarr already exists"):
        Dataset.create(target, *rows(30))
    assert files(folder) == before
    assert len(Dataset.open(target)) == len(first) == 60


def test_a_file_in_the_place_of_a_data_set_is_refused(folder):
    put(f"{folder}/d.zarr")
    with pytest.raises(FileExistsError, match=r"d\.zarr already exists"):
        Dataset.create(f"{folder}/d.zarr", *rows())
    assert files(folder) == {"d.zarr": b"theirs"}


def test_a_target_is_not_there_because_another_name_begins_with_it(folder):
    put(f"{folder}/data.zarr/notes.txt")
    assert len(Dataset.create(f"{folder}/data", *rows())) == 60
    assert files(folder)["data.zarr/notes.txt"] == b"theirs"


def test_a_target_that_appears_while_the_source_is_read_is_left_alone(folder):
    target, put_there = f"{folder}/d.zarr", []

    def watch(phase, count, share):
        if not put_there:
            put(f"{target}/notes.txt")
            put_there.append(phase)

    with pytest.raises(FileExistsError, match=r"d\.zarr already exists"):
        Dataset.create(target, *rows(), shuffle=True, watch=watch)
    assert files(folder) == {"d.zarr/notes.txt": b"theirs"}


def test_a_write_that_fails_removes_what_it_wrote_and_nothing_else(folder):
    target = f"{folder}/d.zarr"
    put(f"{folder}/beside.txt")
    X = np.zeros((210_000, 1))
    X[-1] = np.inf
    seen = []

    def watch(phase, count, share):
        # At a URL the rows are written in place; here somebody else's file comes to lie between them.
        if not seen and any(name.startswith("d.zarr/X/c/") for name in files(folder)):
            put(f"{target}/notes.txt")
            seen.append("d.zarr/notes.txt")

    lazy = da.from_array(X, chunks=(70_000, 1))
    with pytest.raises(ValueError, match="row 209999, column 0: the value is inf"):
        Dataset.create(target, lazy, np.arange(210_000) % 2, shuffle=False, chunk_rows=10_000, watch=watch)
    assert bool(seen) == (not folder.startswith("file://"))
    assert files(folder) == dict.fromkeys(["beside.txt", *seen], b"theirs")


def test_nothing_is_written_where_it_cannot_be_known_what_exists(tmp_path, monkeypatch):
    def forbidden(self, path, **options):
        raise PermissionError(13, "access denied")

    with monkeypatch.context() as patch:
        patch.setattr(type(fsspec.filesystem("memory")), "info", forbidden)
        with pytest.raises(
            OSError, match=r"d\.zarr cannot be written: could not check whether it exists already: .*denied"
        ):
            Dataset.create(f"memory://{tmp_path}/d.zarr", *rows())
    assert files(f"memory://{tmp_path}") == {}


def test_a_store_that_fails_half_way_is_told_and_the_rest_is_removed(tmp_path, monkeypatch):
    work, written = FsspecStore.set, []

    async def failing(self, key, value, *more):
        if len(written) == 8:
            raise PermissionError(13, "the token has expired")
        written.append(key)
        await work(self, key, value, *more)

    monkeypatch.setattr(FsspecStore, "set", failing)
    with pytest.raises(PermissionError, match="the token has expired"):
        Dataset.create(f"memory://{tmp_path}/d.zarr", *rows(), chunk_rows=20)
    assert len(written) == 8
    assert files(f"memory://{tmp_path}") == {}


def test_objects_that_are_being_written_when_another_fails_are_removed_too(tmp_path, monkeypatch):
    work, failed = FsspecStore.set, []

    async def slow(self, key, value, *more):
        if "/c/" in key and not failed:
            failed.append(key)
            raise PermissionError(13, "the token has expired")
        if "/c/" in key:
            await asyncio.sleep(0.3)
        await work(self, key, value, *more)

    monkeypatch.setattr(FsspecStore, "set", slow)
    with pytest.raises(PermissionError, match="the token has expired"):
        Dataset.create(f"memory://{tmp_path}/d.zarr", *rows(), chunk_rows=20)
    time.sleep(0.5)
    assert failed
    assert files(f"memory://{tmp_path}") == {}


@pytest.fixture
def at_once(monkeypatch):
    """What cannot be read is read again at once: no store comes back here."""
    monkeypatch.setattr(stored, "RETRIES", (0.001, 0.001))


def everything(data):
    ids = np.arange(len(data))
    return data.rows(ids), data.codes(ids), data.source_rows(ids), data.weights(ids)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_lost_chunk_is_an_error(folder, kind, at_once):
    X, y = rows()
    X[20:40] = 0  # one chunk has nothing but the values that Zarr would fill in
    y[:2], y[2:] = "no", np.where(np.arange(58) < 29, "no", "yes")
    url = f"{folder}/d.zarr"
    Dataset.create(url, sp.csr_matrix(X) if kind == "sparse" else X, y, np.ones(60), chunk_rows=20, random_state=0)
    expected = everything(Dataset.open(url))
    chunks = {name: content for name, content in files(url).items() if not name.endswith("zarr.json")}
    assert len(chunks) == 7
    of_each_array = {name.split("/c/")[0]: name for name in chunks}
    for name in of_each_array.values() if kind == "dense" else [of_each_array[f"X/{part}"] for part in SPARSE]:
        lose(f"{url}/{name}")
        with pytest.raises((ValueError, OSError), match=rf"d\.zarr.*{name} is missing"):
            everything(Dataset.open(url))
        put(f"{url}/{name}", chunks[name])
    for one, other in zip(everything(Dataset.open(url)), expected, strict=True):
        assert (one != other).sum() == 0


def test_a_chunk_that_is_lost_after_others_were_read_is_an_error(folder, at_once):
    data = Dataset.create(f"{folder}/d.zarr", *rows(), chunk_rows=20)
    data.rows(np.arange(20))
    lose(f"{folder}/d.zarr/X/c/2/0")
    with pytest.raises(OSError, match=r"chunk 2 of X \(rows 40 to 59\) cannot be read: X/c/2/0 is missing"):
        data.rows(np.arange(60))
    with pytest.raises(OSError, match=r"X/c/2/0 is missing"):
        data.as_dask()[0].compute(scheduler="sync")


def test_class_255_of_256_is_not_what_a_lost_chunk_is_taken_for(folder, at_once):
    X = np.arange(512, dtype=np.uint8).reshape(-1, 1)
    data = Dataset.create(f"{folder}/d.zarr", X, np.arange(512) % 256, shuffle=False)
    assert data.codes(np.arange(512)).max() == 255
    lose(f"{folder}/d.zarr/y/c/0")
    with pytest.raises(OSError, match="y/c/0 is missing"):
        Dataset.open(f"{folder}/d.zarr").codes(np.arange(512))


def test_chunks_of_zeros_are_written(folder):
    X = np.zeros((60, 3), np.uint8)
    data = Dataset.create(f"{folder}/d.zarr", X, np.arange(60) % 2, chunk_rows=20)
    assert sum(name.startswith("X/c/") for name in files(f"{folder}/d.zarr")) == 3
    assert not data.rows(np.arange(60)).any()


def test_training_on_two_workers_ends_where_a_chunk_is_lost(folder, at_once):
    X, y = rows(300)
    data = Dataset.create(f"{folder}/d.zarr", X, y, chunk_rows=50, random_state=0)
    with quick(), cluster(2) as client:
        whole = LaSVC(random_state=0, client=client).fit(Dataset.open(data.path))
        assert whole.score(X, y) > 0.8
        lose(f"{folder}/d.zarr/X/c/3/0")
        with pytest.raises(OSError, match=r"chunk 3 of X \(rows 150 to 199\) cannot be read: X/c/3/0 is missing"):
            LaSVC(random_state=0, client=client).fit(Dataset.open(data.path))
