"""Snapshots on disk: a run that goes on from one ends in the model of a run that was never interrupted."""

import errno
import os
import shutil
from itertools import pairwise
from types import SimpleNamespace

import dask.config
import numpy as np
import pytest
from click.testing import CliRunner

from dasksvm import SMOSVC, GapSVC, HeldOut, LaSVC, MulticlassSVC, TrackingSVC, submit, train
from dasksvm.cli.main import main
from dasksvm.data import array_file
from dasksvm.training.snapshots import AnotherRun, Checkpoint, Memo, Pace, Snapshots, WriteTime, snapshots_in
from tests.clusters import cluster, digest, history, noisy, solver

SOLVERS = {
    "lasvm": LaSVC(C=3.0, random_state=1),
    "two epochs": LaSVC(C=3.0, epochs=2, random_state=1, cache_size=0.1),
    "converged": LaSVC(C=3.0, epochs="converged", random_state=1),
    "block engine": LaSVC(C=3.0, engine="blocks", epochs=2, random_state=1),
    "block engine converged": LaSVC(C=3.0, engine="blocks", epochs="converged", random_state=1),
    "active": LaSVC(C=3.0, selection="active", max_examples=80, random_state=1),
    "gap": GapSVC(C=3.0, random_state=1),
    "tracking": TrackingSVC(C=1.0, steps=3, random_state=1),
    "machine": MulticlassSVC(C=3.0, machine="llw", random_state=1),
    "machine in blocks": MulticlassSVC(C=3.0, machine="cs", solver="batch", random_state=1),
    "blocks": SMOSVC(C=3.0, random_state=1),
    "pairs": SMOSVC(C=3.0, working_set_size=2, tol=0.3, random_state=1),
}


class Stop(Exception):
    """What ends a run as a kill would."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=1500)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "small.zarr", rows=300, chunk_rows=90)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """On a cluster, time for a snapshot after every few results."""
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)


def killed_after(results):
    count = iter(range(results))

    def watch(progress, seconds):
        if next(count, None) is None:
            raise Stop
        return False

    return watch


def results_of(data, estimator, **options):
    count = []
    run = train(data, estimator, callbacks=[lambda *_: bool(count.append(1))], **options)
    return len(count), run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in ("gap", "tracking", "machine", "machine in blocks")
        else name
        for name in SOLVERS
    ],
)
def test_a_resumed_run_ends_as_one_that_was_never_interrupted(small, tmp_path, name):
    estimator = SOLVERS[name]
    results, whole = results_of(small, estimator)
    for share in (0.1, 0.8):
        folder = tmp_path / f"{share}"
        with pytest.raises(Stop):
            train(small, estimator, checkpoint=folder, every=0, callbacks=[killed_after(max(int(share * results), 1))])
        left, again = results_of(small, estimator, checkpoint=folder, every=0, resume=True)
        assert left < results
        assert digest(again.estimator) == digest(whole.estimator)
        assert history(again.estimator) == history(whole.estimator)
        assert again.estimator.kernel_evaluations_ == whole.estimator.kernel_evaluations_


def test_interrupted_again_and_again(data, tmp_path):
    whole = train(data, solver())
    tries = 0
    while True:
        tries += 1
        try:
            run = train(data, solver(), checkpoint=tmp_path, every=0, resume=tries > 1, callbacks=[killed_after(4)])
        except Stop:
            assert len(snapshots_in(tmp_path)) <= 3
            continue
        break
    assert tries > 3
    assert digest(run.estimator) == digest(whole.estimator)
    assert history(run.estimator) == history(whole.estimator)
    assert np.all(np.diff([entry["seconds"] for entry in run.history]) >= 0)


def test_a_run_on_a_cluster_goes_on_here_and_the_other_way_round(data, tmp_path):
    whole = train(data, solver())
    with cluster(2) as client:
        for first, then in ((client, None), (None, client)):
            folder = tmp_path / f"{first is None}"
            with pytest.raises(Stop):
                train(data, solver(client=first), checkpoint=folder, every=0, callbacks=[killed_after(9)])
            assert snapshots_in(folder)
            left, run = results_of(data, solver(client=then), checkpoint=folder, resume=True)
            assert left < len(whole.history)
            assert digest(run.estimator) == digest(whole.estimator)
            assert history(run.estimator) == history(whole.estimator)


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_a_run_that_finds_no_snapshot_to_go_on_from_says_so(data, tmp_path, where):
    whole = train(data, solver())
    with (
        cluster(1) as client,
        pytest.warns(RuntimeWarning, match=f"^No snapshot found in {tmp_path}: starting from the beginning.$"),
    ):
        run = train(data, solver(client=client if where == "cluster" else None), checkpoint=tmp_path, resume=True)
    assert digest(run.estimator) == digest(whole.estimator)


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_a_run_that_was_told_to_stop_goes_on_from_there(data, tmp_path, where):
    whole = train(data, solver())
    count = iter(range(8))
    with cluster(1) as client:
        options = {"checkpoint": tmp_path, "every": 3600, "client": client if where == "cluster" else None}
        run = train(data, solver(), callbacks=[lambda *_: next(count, None) is None], **options)
        assert run.stopped
        assert len(snapshots_in(tmp_path)) == 1
        again = train(data, solver(), resume=True, **options)
    assert not again.stopped
    assert digest(again.estimator) == digest(whole.estimator)


def test_held_out_sets_go_on_where_they_were(data, tmp_path):
    def watched():
        return [HeldOut(data, every=300, patience=9), HeldOut(data, every=450)]

    first, again = watched(), watched()
    whole = train(data, solver(), callbacks=first)
    with pytest.raises(Stop):
        train(data, solver(), checkpoint=tmp_path, every=0, callbacks=[*watched(), killed_after(22)])
    run = train(data, solver(), checkpoint=tmp_path, resume=True, callbacks=again)
    assert history(run.estimator) == history(whole.estimator)
    for one, other in zip(first, again, strict=True):
        assert [entry["error"] for entry in one.entries] == [entry["error"] for entry in other.entries]
    assert len(first[0].entries) > 2


def test_other_held_out_sets_than_before(data, tmp_path):
    def watched(*every):
        return [HeldOut(data, every=each) for each in every]

    with pytest.raises(Stop):
        train(data, solver(), checkpoint=tmp_path, every=0, callbacks=[*watched(300, 450), killed_after(22)])
    whole = train(data, solver())
    for callbacks in ([], watched(1000)):
        run = train(data, solver(), checkpoint=tmp_path, resume=True, callbacks=callbacks)
        assert digest(run.estimator) == digest(whole.estimator)
    for callbacks in (watched(300, 450, 500), watched(700, 450)):
        with pytest.raises(ValueError, match="other held-out sets"):
            train(data, solver(), checkpoint=tmp_path, resume=True, callbacks=callbacks)


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_told_to_stop_by_what_a_held_out_set_shows(data, tmp_path, where):
    """The snapshot waits for the copy that is shown, and the stop for the snapshot."""
    whole = train(data, solver(epochs=2))
    with cluster(1) as client:
        options = {"checkpoint": tmp_path, "every": 3600, "client": client if where == "cluster" else None}
        run = train(data, solver(epochs=2), callbacks=[HeldOut(data, every=200, patience=1)], **options)
        assert run.stopped
        assert len(snapshots_in(tmp_path)) == 1
        again = train(data, solver(epochs=2), resume=True, **options)
    assert digest(again.estimator) == digest(whole.estimator)


def test_a_folder_that_goes_away_does_not_end_the_run(data, tmp_path, alone):
    count = iter(range(9))

    def away(progress, seconds):
        if next(count, None) is None:
            shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        return False

    with pytest.warns(RuntimeWarning, match="could not be written"):
        run = train(data, solver(), checkpoint=tmp_path / "kept", every=0, callbacks=[away])
    assert digest(run.estimator) == digest(alone)
    with pytest.raises(ValueError, match="only a local path"):
        train(data, solver(), checkpoint="s3://bucket/run")


def interrupted(data, folder, estimator=None, results=9):
    options = {"checkpoint": folder, "every": 0, "callbacks": [killed_after(results)]}
    with pytest.raises(Stop):
        train(data, solver() if estimator is None else estimator, **options)
    return sorted(folder.glob("snapshot-*"))


def test_a_corrupt_newest_snapshot_is_passed_over(data, tmp_path, alone):
    newest = interrupted(data, tmp_path)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=f"{newest.name} cannot be used"):
        run = train(data, solver(), checkpoint=tmp_path, resume=True)
    assert digest(run.estimator) == digest(alone)


def test_no_readable_snapshot_is_an_error(data, tmp_path):
    for path in interrupted(data, tmp_path):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"not complete.*start from the beginning"):
        train(data, solver(), checkpoint=tmp_path, resume=True)


def test_snapshots_of_an_older_version_are_refused(data, tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr("dasksvm.training.snapshots.VERSION", 1)
        interrupted(data, tmp_path)
    with pytest.raises(ValueError, match="it has version 1 of the format, and this version of dasksvm reads 2"):
        train(data, solver(), checkpoint=tmp_path, resume=True)


def test_another_runs_snapshots_are_refused(data, tmp_path):
    interrupted(data, tmp_path)
    other = noisy(tmp_path / "other.zarr", rows=1400)
    cases = [
        (data, solver(C=4.0), "classes.bounds"),
        (data, solver(gamma=0.7), "kernel.gamma"),
        (data, solver(random_state=2), "random_state"),
        (other, solver(), "chunks"),
        (data, SMOSVC(C=3.0, random_state=1), "solver"),
    ]
    for given, estimator, what in cases:
        with pytest.raises(AnotherRun, match=what):
            train(given, estimator, checkpoint=tmp_path, resume=True)
    with pytest.raises(FileExistsError, match="already holds snapshots"):
        train(data, solver(), checkpoint=tmp_path)
    with cluster(1) as client, pytest.raises(AnotherRun, match=r"kernel\.gamma"):
        train(data, solver(gamma=0.7), client=client, checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="need a checkpoint"):
        train(data, solver(), resume=True)


def test_without_a_seed_that_of_the_snapshot_is_taken(data, tmp_path):
    estimator = solver(random_state=None)
    interrupted(data, tmp_path, estimator)
    first = train(data, estimator, checkpoint=tmp_path, resume=True)
    again = train(data, estimator, checkpoint=tmp_path, resume=True)
    assert digest(first.estimator) == digest(again.estimator)


def test_a_full_disk_does_not_end_the_run(data, tmp_path, alone, monkeypatch):
    real, calls = os.fsync, []

    def full(handle):
        calls.append(1)
        if len(calls) in (3, 4):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(array_file.os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        run = train(data, solver(), checkpoint=tmp_path, every=0)
    assert digest(run.estimator) == digest(alone)
    assert len(calls) > 4
    assert len(snapshots_in(tmp_path)) == 3
    assert not list(tmp_path.glob("*.part"))


def test_snapshots_keep_to_their_share_of_the_time(data, tmp_path):
    with dask.config.set({"dasksvm.snapshot-every": 0, "dasksvm.snapshot-share": 1e-6}):
        run = train(data, solver(), checkpoint=tmp_path)
    assert not snapshots_in(tmp_path)
    assert run.timings.keeping == 0


@pytest.mark.parametrize("how", ["train", "command line", "submit"])
def test_what_the_user_says_of_every_comes_before_the_share(data, tmp_path, how, monkeypatch):
    kept, keep = [], Snapshots.write

    def counted(self, learner, memo):
        kept.append(memo)
        return keep(self, learner, memo)

    monkeypatch.setattr(Snapshots, "write", counted)
    folder = tmp_path / "kept"
    with dask.config.set({"dasksvm.snapshot-share": 1e-6}):
        if how == "train":
            train(data, solver(), checkpoint=folder, every=1e-3)
        elif how == "command line":
            options = ["--checkpoint", str(folder), "--every", "1ms", "--c", "3", "-q"]
            done = CliRunner().invoke(main, ["train", data.path, str(tmp_path / "model"), *options])
            assert done.exit_code == 0, done.output
        else:
            with cluster(1) as client:
                job = submit(data, solver(), client=client, checkpoint=folder, every=1e-3)
                assert job.attach(()).state == "done"
    assert len(kept) > 3


class Storage:
    """Snapshots with a clock and a storage of their own: how long a run of a state's size waits for its next snapshot."""

    def __init__(self, monkeypatch, folder, pace, seconds_of):
        self.now, self.size, self.times = 0.0, 1, []
        self.learner = SimpleNamespace(stopped=False, applied=0, settings=SimpleNamespace(seed=0))
        monkeypatch.setattr("dasksvm.training.snapshots.perf_counter", lambda: self.now)
        monkeypatch.setattr(
            "dasksvm.training.snapshots.learner_state.view", lambda _: {"rows": np.broadcast_to(np.uint8(0), self.size)}
        )

        def write(path, kind, version, about, arrays):
            self.now += seconds_of(self.size)

        monkeypatch.setattr("dasksvm.training.snapshots.array_file.write", write)
        self.snapshots = Snapshots(Checkpoint(str(folder), pace, False, {}, True))
        self.snapshots.begin(self.learner)

    def run(self, seconds, size, step=0.5):
        """Go on for a while, with a state of so many bytes; give the times at which snapshots were begun and ended."""
        self.size, end, times = size, self.now + seconds, []
        while self.now < end:
            self.now += step
            self.learner.applied += 1
            if self.snapshots.due(self.learner, self.now):
                began = self.now
                assert self.snapshots.write(self.learner, Memo([], 0, began)) is None
                times.append((began, self.now))
        return times


DEFAULT = Pace(30.0, 0.02, 600.0)


def test_a_small_slow_snapshot_does_not_suppress_the_later_ones(monkeypatch, tmp_path):
    """The first takes 3.7 s for 0.4 MB, because the storage takes its time for each file; it writes 100 MB a second."""
    storage = Storage(monkeypatch, tmp_path, DEFAULT, lambda size: 3.7 + size / 1e8)
    assert len(storage.run(40, 400_000)) == 1
    times = storage.run(4 * 3600, 40_000_000)
    began = [began for began, _ in times]
    assert began[0] < 600
    assert max(np.diff(began)) < 300
    # They keep to their share all the same.
    assert sum(end - began for began, end in times) + 3.7 <= 0.0201 * storage.now


def test_what_is_said_of_every_is_honoured_on_slow_storage(monkeypatch, tmp_path):
    storage = Storage(monkeypatch, tmp_path, Pace(1.0), lambda size: 3.7)
    times = storage.run(60, 400_000)
    assert len(times) >= 12


def test_the_wait_for_a_large_snapshot_on_slow_storage_is_bounded(monkeypatch, tmp_path):
    """A gigabyte at 4 MB/s takes 250 s; at a share of 2 % it would come once in 3.5 hours."""
    storage = Storage(monkeypatch, tmp_path, DEFAULT, lambda size: size / 4e6)
    times = storage.run(8 * 3600, 1_000_000_000)
    assert times[0][0] <= 601
    lost = [then - end for (_, end), (then, _) in pairwise(times)]
    assert max(lost) <= 601
    assert len(lost) > 20


def test_the_time_of_a_snapshot_is_predicted_from_files_and_bytes():
    written = WriteTime()
    assert written.predict(200_000_000) == pytest.approx(1.0)
    # One slow small file says nothing of the time for each byte.
    written.learn(400_000, 3.7)
    assert written.predict(400_000) == pytest.approx(3.7)
    assert written.predict(1_000_000_000) == pytest.approx(8.7, abs=0.1)
    written.learn(100_000_000, 3.6 + 25.0)
    assert written.predict(1_000_000_000) == pytest.approx(3.6 + 250, rel=0.01)
    # It follows the storage: here one that is faster now.
    for size in (1e6, 1e8, 1e9, 1e6, 1e8, 1e9, 2e6, 2e8):
        written.learn(int(size), 0.1 + size / 1e9)
    assert written.predict(500_000_000) == pytest.approx(0.6)
    # Noise does not become a negative time.
    for size, seconds in ((1e6, 5.0), (1e9, 1.0)) * 4:
        written.learn(int(size), seconds)
    assert 0 < written.predict(10**12) < 10


def test_an_executor_that_was_thought_lost_does_not_stand_in_the_way(data, tmp_path):
    """It may still write: what its successor wrote is newer, and stays."""
    interrupted(data, tmp_path)
    stale = sorted(tmp_path.glob("snapshot-0001-*"))[-1].read_bytes()
    with pytest.raises(Stop):
        train(data, solver(), checkpoint=tmp_path, every=0, resume=True, callbacks=[killed_after(6)])
    assert snapshots_in(tmp_path)[-1][0] == 2
    (tmp_path / "snapshot-0001-999999").write_bytes(stale)
    left, _ = results_of(data, solver(), checkpoint=tmp_path, resume=True)
    assert left <= len(train(data, solver()).history) - 14


def test_of_two_runs_that_begin_at_once_one_keeps_snapshots(data, tmp_path, alone):
    """The later one: each is as if alone, and the other says that it keeps none."""
    begun = []

    def begin_another(progress, seconds):
        if not begun:
            begun.append(train(data, solver(), checkpoint=tmp_path, every=0))
        return False

    with pytest.warns(RuntimeWarning, match="another executor has taken over"):
        run = train(data, solver(), checkpoint=tmp_path, every=0, callbacks=[begin_another])
    assert digest(run.estimator) == digest(begun[0].estimator) == digest(alone)
    assert {executor for executor, _ in snapshots_in(tmp_path)} == {2}
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_that_cannot_be_written_to(data, tmp_path, alone, monkeypatch):
    def full(self, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dasksvm.training.snapshots.Path.touch", full)
    with pytest.warns(RuntimeWarning, match="cannot write to"):
        run = train(data, solver(), checkpoint=tmp_path)
    assert digest(run.estimator) == digest(alone)
