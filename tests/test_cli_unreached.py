"""The commands for jobs, where no scheduler answers."""

import json
import socket

import dask.config
import pytest

from dasksvm import config
from tests.clusters import noisy
from tests.test_cli import call


@pytest.fixture(params=["dead", "frozen"])
def address(request):
    """An address at which nobody is, or somebody who takes connections and says nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if request.param == "frozen":
            taken.listen()
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("command", ["submit", "status", "attach", "cancel", "fetch"])
@pytest.mark.parametrize("by", ["address", "file"])
def test_a_scheduler_that_gives_no_answer_is_told(by, command, address, tmp_path, monkeypatch):
    arguments = {"submit": [tmp_path / "d.zarr"], "status": [], "fetch": ["job", tmp_path / "m"]}.get(command, ["job"])
    if command == "submit":
        noisy(tmp_path / "d.zarr", rows=50)
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    where = ("--scheduler", address) if by == "address" else ("--scheduler-file", file)
    monkeypatch.setattr("dasksvm.cli.jobs.NOTICE", 0.0)
    with dask.config.set({"dasksvm.connect-timeout": "300ms"}):
        result = call(command, *arguments, *where)
    assert result.exit_code == 4
    told = address if by == "address" else f"of {file}"
    waits, ends = result.stderr.splitlines()
    assert waits == f"waiting up to 0.3 s for the scheduler {told}"
    assert ends.startswith("dasksvm: could not reach the scheduler: ")
    assert address in ends


def test_nobody_waits_for_long():
    assert config.seconds_of("connect-timeout") <= 10


def test_a_file_without_an_address_is_told(tmp_path):
    for text in ("", "[]", "{}"):
        (tmp_path / "scheduler.json").write_text(text)
        result = call("status", "--scheduler-file", tmp_path / "scheduler.json")
        assert result.exit_code == 4
        assert result.stderr == f"dasksvm: {tmp_path}/scheduler.json does not contain the address of a scheduler.\n"
