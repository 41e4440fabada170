"""`dasksvm train`: options that become an estimator, snapshots, budgets, progress."""

import io
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest

import dasksvm
from dasksvm import Dataset, LaSVC, load
from dasksvm.cli import ingest, solver_options
from dasksvm.cli.label import label
from dasksvm.cli.train import train
from dasksvm.data.ingest.readers.formats import FORMATS
from dasksvm.data.scales import SCALES
from dasksvm.runtime.coordinator import Coordinator
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.messages import Progress
from dasksvm.training.callbacks import ProgressLines
from dasksvm.training.snapshots import snapshots_in
from tests.clusters import cluster, wait_for
from tests.helpers import blobs
from tests.test_cli import call

OF_THE_COMMAND = {"verbose", "client"}


@pytest.fixture
def data(tmp_path):
    X, y = blobs(400)
    return Dataset.create(tmp_path / "data.zarr", X, y, chunk_rows=90, random_state=0)


def trained(data, *options):
    """The parameters that a command trained with."""
    model = Path(data.path).parent / "model"
    result = call("train", data.path, model, *options, "--json", "-q")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)["parameters"]


def test_choices_are_those_of_the_library():
    options = {option.name: option.type for command in (train, ingest.ingest, label) for option in command.params}
    choices = {name: list(options[name].choices) for name in ("kernel", "selection", "format", "scale")}
    assert choices == {
        "kernel": list(KERNELS),
        "selection": list(CRITERIA),
        "format": list(FORMATS),
        "scale": list(SCALES),
    }


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("lasvc", "smosvc") else pytest.param(name, marks=pytest.mark.slow)  # to compile it
        for name in solver_options.SOLVERS
    ],
)
def test_every_parameter_can_be_given(name, data):
    """With the value that it has anyway, but for a few that are quick to see."""
    kind = getattr(dasksvm, solver_options.SOLVERS[name])
    values = kind().get_params() | {"C": 2.0, "gamma": 0.25, "random_state": 7, "class_weight": "balanced"}
    options = ["--solver", name]
    for parameter, value in values.items():
        if parameter in solver_options.OPTIONS:
            options += [] if value is None else [solver_options.flag_of(parameter), value]
        elif parameter == "random_state":
            options += ["--seed", value]
        elif parameter == "class_weight":
            options += ["--class-weight", value]
        elif parameter not in OF_THE_COMMAND:
            options += ["--set", f"{parameter}={value if isinstance(value, str) else json.dumps(value)}"]
    expected = {parameter: value for parameter, value in values.items() if parameter not in OF_THE_COMMAND}
    assert trained(data, *options) == expected


def test_letters_of_libsvm(data):
    letters = ("-c", 3, "-t", 1, "-g", 0.5, "-d", 2, "-r", 1, "-e", 0.01, "-m", 50, "-w1", 5, "-w", "-1", 0.5)
    found = trained(data, *letters)
    expected = {"C": 3, "kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1, "tol": 0.01, "cache_size": 50}
    assert {name: found[name] for name in expected} == expected
    assert found["class_weight"] == {"1": 5, "-1": 0.5}
    assert [trained(data, "-t", number)["kernel"] for number in (0, 2)] == ["linear", "rbf"]


def test_weights_of_classes_are_for_labels_as_they_are_written(tmp_path):
    X, y = blobs(200)
    for labels, written in ((np.where(y > 0, "1", "b"), "1"), (np.where(y > 0, 1.0, 2.0), "1")):
        data = Dataset.create(tmp_path / f"{labels.dtype}.zarr", X, labels, random_state=0)
        trained(data, "-w", written, 4)
        weighted = LaSVC(class_weight={labels[y > 0][0]: 4.0}, random_state=0).fit(data)
        assert np.array_equal(load(tmp_path / "model").coefficients, weighted.dual_coef_)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--gamma big", "neither a number nor scale nor auto"),
        ("-t 4", "'4' is not one of"),
        ("-c -1", "'C' parameter"),
        ("--max-support 1", "'max_support' parameter"),
        ("--max-time soon", "Invalid duration 'soon': use 30s, 5 min or a number of seconds."),
        ("--max-time 0", "Invalid duration '0': it must be positive"),
        ("--solver smosvc --epochs 2", "SMOSVC has no --epochs"),
        ("--solver trackingsvc -e 0.1", "TrackingSVC has no --tol"),
        ("--solver multiclasssvc --decision-function-shape ovo", "MulticlassSVC has no --decision-function-shape"),
        ("--set variant=nc", "LaSVC has delta_max, finish, reprocess, second_order."),
        ("--set C=1", "has its own option or is set by the command"),
        ("--set client=a", "has its own option or is set by the command"),
        ("--set finish", "NAME=VALUE"),
        ("--set reprocess=2 --set reprocess=3", "twice"),
        ("--set reprocess=much", "'reprocess' parameter"),
        ("-w 3 1", "the classes are -1, 1"),
        ("-w 1 1 -w 1.0 2", "already has a weight"),
        ("-w 1 -2", "not in the range"),
        ("-w 1 2 --class-weight balanced", "cannot be used together"),
        ("-w 1 inf", "is not finite"),
        ("-w 1 nan", "is not finite"),
        ("--max-time ''", "Invalid duration"),
        ("--max-time 1e400", "Invalid duration"),
        ("--seed -1", "not in the range"),
        ("--checkpoint s3://bucket/kept", "only a local path"),
        ("--every 30s", "need a checkpoint"),
        ("--resume", "need a checkpoint"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(options, told, data, tmp_path):
    result = call("train", data.path, tmp_path / "model", *shlex.split(options))
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("written", "seconds"), [("30s", 30), ("5 min", 300), ("90", 90), ("0.5", 0.5), ("1h", 3600)])
def test_times_as_dask_writes_them(written, seconds, data):
    assert trained(data, "--max-time", written)["max_time"] == seconds


def test_snapshots_are_passed_on(data, tmp_path, monkeypatch):
    run, given = dasksvm.train(data, LaSVC(random_state=0)), []

    def spy(data, estimator, client=None, callbacks=(), **more):
        given.append(more)
        return run

    monkeypatch.setattr("dasksvm.estimators.training.train", spy)
    keep = ("--checkpoint", tmp_path / "kept")
    for options in ((), keep, (*keep, "--every", "5 min", "--resume")):
        assert call("train", data.path, tmp_path / "model", *options).exit_code == 0
    folder = str(tmp_path / "kept")
    assert given == [
        {},
        {"checkpoint": folder, "every": None, "resume": False},
        {"checkpoint": folder, "every": 300.0, "resume": True},
    ]


@pytest.mark.parametrize(
    "budget",
    ["--max-support 20", "--max-examples 90", "--max-time 1us --epochs 50", "--max-time 1us --solver smosvc"],
)
@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_a_budget_that_ends_a_run_is_told(budget, data, tmp_path):
    model = tmp_path / "model"
    result = call("train", data.path, model, *budget.split())
    assert result.exit_code == 3
    assert "a budget ended the run early" in result.stdout
    assert len(load(model).classes) == 2
    result = call("train", data.path, model, *budget.split(), "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["stopped"] is True


@pytest.mark.filterwarnings("always:No snapshot found:RuntimeWarning")
def test_a_run_goes_on_from_its_snapshots(data, tmp_path):
    model, keep = tmp_path / "model", ("--checkpoint", tmp_path / "kept", "--every", "1us", "--epochs", 3)
    first = call("train", data.path, model, *keep, "--max-time", "1us", "--resume")
    assert first.exit_code == 3
    assert f"dasksvm: warning: No snapshot found in {tmp_path}/kept: starting from the beginning." in first.stderr
    assert call("train", data.path, model, *keep).exit_code == 4
    again = call("train", data.path, model, *keep, "--resume")
    assert again.exit_code == 0
    assert "starting from the beginning" not in again.stderr
    whole = LaSVC(epochs=3, random_state=0).fit(data)
    assert np.array_equal(load(model).coefficients, whole.dual_coef_)


@pytest.mark.parametrize(
    "where", [(), pytest.param(("--workers", 1), marks=pytest.mark.cluster)], ids=["here", "cluster"]
)
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT], ids=["terminated", "interrupted"])
def test_a_run_that_a_signal_ends_keeps_a_snapshot_and_goes_on(by, where, data, tmp_path, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)
    calls, show = [], ProgressLines.__call__

    def terminating(self, progress, seconds):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), by)
        return show(self, progress, seconds)

    model, kept = tmp_path / "model", tmp_path / "kept"
    command = ("train", data.path, model, "--checkpoint", kept, "--epochs", 3, *where)
    # A process that was started in the background ignores SIGINT, and so would the command.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(ProgressLines, "__call__", terminating)
            result = call(*command)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 128 + by, result.output
    told = "terminated" if by == signal.SIGTERM else "interrupted"
    again = f"{told}: a last snapshot was written. To resume: svm {shlex.join(map(str, command))} --resume"
    assert again in result.stderr
    assert not model.exists()
    assert len(snapshots_in(kept)) == 1
    assert call(*command, "--resume").exit_code == 0
    assert np.array_equal(load(model).coefficients, LaSVC(epochs=3, random_state=0).fit(data).dual_coef_)


@contextmanager
def started(program, *arguments):
    """Start a command as from a terminal: its processes are a group, to which Ctrl-C goes."""
    with subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Pytest may be in the background, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def heard(process, text):
    """Wait until a process has said something on standard error; give all that it has said."""
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, f"{text!r} was not said, but: {said}"
        said += line
    return said


def members_of(group):
    """The processes of a group that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.cluster
@pytest.mark.parametrize("where", [(), ("--workers", 1)], ids=["here", "cluster"])
def test_ctrl_c_writes_a_snapshot_and_tells_how_to_go_on(where, data, tmp_path):
    kept = tmp_path / "kept"
    command = ("train", data.path, tmp_path / "a model", "--checkpoint", kept, "--epochs", 1_000_000, *where)
    with started(("-m", "dasksvm"), *command) as process:
        heard(process, "seen")
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert len(snapshots_in(kept)) == 1
    (line,) = (line for line in said.splitlines() if "To resume:" in line)
    again = shlex.split(line.partition("To resume: ")[2])
    assert again == ["python", "-m", "dasksvm", *map(str, command), "--resume"]
    found = subprocess.run([sys.executable, *again[1:], "--max-time", "1us"], capture_output=True, text=True)
    assert found.returncode == 3, found.stderr
    assert "starting from the beginning" not in found.stderr


@pytest.mark.cluster
@pytest.mark.parametrize("where", [(), ("--workers", 1)], ids=["here", "cluster"])
def test_a_second_ctrl_c_ends_at_once(where, data, tmp_path):
    # A snapshot that is never written.
    stuck = "import time; from dasksvm.cli.train import StopOnSignal; from dasksvm.cli.main import main; "
    stuck += "StopOnSignal.__call__ = lambda self, *_: self._code is not None and time.sleep(3600); main()"
    command = ("train", data.path, tmp_path / "model", "--checkpoint", tmp_path / "kept", "--epochs", 1_000_000)
    with started(("-c", stuck), *command, *where) as process:
        heard(process, "seen")
        os.killpg(process.pid, signal.SIGINT)
        heard(process, "press Ctrl-C again to end at once")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    wait_for(lambda: not members_of(process.pid))


def test_a_model_that_cannot_be_written_is_told_before_the_training(data):
    result = call("train", data.path, "/proc/model")
    assert result.exit_code == 4
    assert "/proc/model cannot be written" in result.stderr
    assert "online" not in result.stderr


def test_terminated_while_the_coordinator_does_not_answer(data, tmp_path, monkeypatch):
    monkeypatch.setattr("dasksvm.cli.train.SNAPSHOT_TIMEOUT", 0.2)
    go_on = threading.Event()

    def stuck(self, turn):
        os.kill(os.getpid(), signal.SIGTERM)
        go_on.wait(20)

    monkeypatch.setattr(Coordinator, "advance", stuck)
    # A run that takes the end of its process for a lost coordinator begins again, and asks for the end again.
    monkeypatch.setattr("dasksvm.runtime.driver.COORDINATORS", 2)
    with cluster(2) as client:
        where = ("--scheduler", client.scheduler.address)
        try:
            result = call("train", data.path, tmp_path / "model", "--checkpoint", tmp_path / "kept", *where)
        finally:
            go_on.set()
    assert result.exit_code == 143, result.output
    assert "terminated" in result.stderr


# Progress


def moment(phase, seen, delta=(0.5,), measure="delta", members=1234, epoch=0):
    delta = np.array(delta)
    return Progress(phase, epoch, seen, members, 10, delta, delta, 100, measure)


def test_a_line_tells_where_a_run_stands():
    lines = ProgressLines(10_000, 100, io.StringIO())
    assert lines.line(moment("seeding", 100), 30) == "seeding  1,234 kept  violation 0.5  30.0 s"
    # What came before the first line is no measure: the first batch waits until all is compiled.
    assert lines.line(moment("online", 150), 40) == "online 0%  50 seen  1,234 kept  violation 0.5  40.0 s"
    told = "online 25%  2,500 seen, 2,450 rows/s  122k kept  gap 12  41.0 s, 3.1 s left"
    assert lines.line(moment("online", 2600, (3.0, 12.3, 0.1), "gap", 121_989), 41) == told
    # The rate is that of the last ten seconds.
    told = "online 50%  5,000 seen, 50 rows/s  1,234 kept  violation 0.5  1:31, 1:40 left"
    lines.line(moment("online", 4600), 81)
    assert lines.line(moment("online", 5100), 91) == told
    for phase in ("finishing", "checking"):
        assert lines.line(moment(phase, 10_100), 3700) == f"{phase}  10k seen  1,234 kept  violation 0.5  1:01:40"
    # Another pass than those that are made for sure, which may be short.
    assert lines.line(moment("online", 10_200, epoch=1), 99) == (
        "online  epoch 2  10.1k seen  1,234 kept  violation 0.5  1:39"
    )
    assert lines.line(moment("done", 10_100), 200) == "done  10k seen, 50 rows/s  1,234 kept  violation 0.5  3:20"


@pytest.mark.parametrize("width", [40, 79, 120])
def test_a_line_fits_the_terminal(width):
    lines = ProgressLines(10_000_000, 0, io.StringIO())
    for seen, seconds in ((0, 1.0), (1_234_567, 5000.0), (4_500_000, 50_000.0)):
        for phase in ("online", "finishing", "done"):
            line = lines.line(moment(phase, seen, (1.2e-7,), "gap", 121_989, epoch=1), seconds, width)
            assert len(line) <= width
    lines.line(moment("online", 0), 1.0, width)
    line = lines.line(moment("online", 5_000_000), 600.0, width)
    if width > 40:
        assert line.count("█") == line.count("░") == {79: 5, 120: 10}[width]
        assert line.endswith("  10:00, 9:59 left")


def test_progress_in_a_terminal_and_in_a_pipe(data, tmp_path):
    command = [sys.executable, "-m", "dasksvm", "train", data.path, str(tmp_path / "model"), "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stderr.splitlines()][-1] == "done"
    assert "\r" not in done.stderr
    assert done.stdout.startswith("trained in")
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its) as found:
        os.close(its)
        shown = b""
        while part := read(ours):
            shown += part
    assert found.returncode == 0
    drawn = shown.decode().replace("\r\n", "\n").split("\r\x1b[K")
    assert drawn[0] == ""
    assert all(len(line) < 80 for line in drawn)
    assert drawn[-1].startswith("done  1,200 seen")
    assert drawn[-1].endswith(" s\n")


def read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def test_an_error_does_not_stand_in_the_line_of_progress(data, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def fail(progress, seconds):
        raise SimpleError("full")

    class SimpleError(Exception):
        pass

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(SimpleError):
        dasksvm.train(data, LaSVC(verbose=1), callbacks=[fail])
    assert stream.getvalue().endswith("\n")
