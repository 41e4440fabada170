"""What the documentation shows is executed: the examples of docstrings, and the blocks of README."""

import doctest
import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from dasksvm.cli import main as cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "dasksvm").rglob("*.py")
    if ">>> " in path.read_text()
)
# Other commands that README tells.
PROGRAMS = ("dasksvm", "pip", "python", "ruff", "mypy")


def blocks(language):
    return [text for named, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.S | re.M) if named == language]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own for what examples write."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name, elsewhere):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_blocks_of_readme(elsewhere, capfd):
    """All Python blocks in order, as one program: later ones use the names of those before."""
    found = blocks("python")
    assert len(found) == README.count("```python")
    names = {"__name__": "__main__"}
    for number, block in enumerate(found):
        exec(compile(block, f"README.md, Python block {number}", "exec"), names)
    assert (elsewhere / "spheres.svm").exists()
    assert (elsewhere / "iris.model").exists()


def commands():
    """The commands of README's shell blocks, as lists of words."""
    for line in (line for block in blocks("") for line in block.splitlines()):
        for command in line.split("&&"):
            words = shlex.split(command.replace("[JOB]", "JOB"), comments=True)
            if words:
                yield words


def test_commands_of_readme_exist():
    """Not executed, but read as the command line reads them: names, options that exist, values, as many words as are taken."""
    seen = set()
    for program, *words in commands():
        assert program in PROGRAMS
        if program == "dasksvm":
            command = cli.main.commands[words[0]]
            given, left, _ = command.make_parser(click.Context(command)).parse_args(words[1:])
            assert not left, words
            assert not [param for param in command.params if param.required and given.get(param.name) is None], words
            seen.add(words[0])
    assert {"quickstart", "ingest", "info", "train", "evaluate", "predict", "submit", "status", "label"} <= seen


def test_commands_within_the_text_of_readme_exist():
    found = re.findall(r"`(?:dasksvm|dask svm) (\w+)([^`]*)`", README)
    assert len(found) > 5
    for name, rest in found:
        command = cli.main.commands[name]
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, (name, rest)
