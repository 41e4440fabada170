"""What the documents show is executed and checked: examples of docstrings, Python blocks, commands, links, names."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from dasksvm.cli import main as cli
from dasksvm.cli.solver_options import SOLVERS
from dasksvm.data.ingest.readers.formats import FORMATS
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.kernels.registry import KERNELS

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING, CHANGELOG = (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))
RESULTS = ROOT / "pipelines" / "RESULTS.md"
GUIDES = sorted((ROOT / "docs").glob("*.md"))
ENVIRONMENT = ROOT / "deploy" / "environment.md"
DOCUMENTS = [README, CONTRIBUTING, RESULTS, ENVIRONMENT, *GUIDES]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "dasksvm").rglob("*.py")
    if ">>> " in path.read_text()
)
# Programs that the documents call.
PROGRAMS = ("dasksvm", "pip", "python", "ruff", "mypy", "codespell", "pre-commit", "find")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [text for of, text in BLOCK.findall(path.read_text()) if of == language]


def prose(path: Path) -> str:
    """The text outside of blocks of code."""
    return BLOCK.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own for what examples write."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Python


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name, elsewhere):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != README and blocks(path, "python")], ids=named)
def test_python_blocks_run(path, elsewhere, capfd):
    """All Python blocks of a document in order, as one program: later ones use the names of those before."""
    found = blocks(path, "python")
    assert len(found) == path.read_text().count("```python")
    names = {"__name__": "__main__"}
    for number, block in enumerate(found):
        exec(compile(block, f"{named(path)}, Python block {number}", "exec"), names)


def test_output_of_readme(elsewhere, capfd):
    """The example runs, and prints what README says, with numbers that may differ by a tenth from one type of CPU to another."""
    (block,), (expected,) = blocks(README, "python"), blocks(README, "text")
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    printed = capfd.readouterr().out
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", expected)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (printed, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1)


# Commands


def commands(path: Path):
    """The commands of a document's shell blocks, as lists of words."""
    for line in (line for block in blocks(path, "") for line in block.splitlines()):
        for command in line.split("&&"):
            words = shlex.split(command.replace("[JOB]", "JOB"), comments=True)
            if words:
                yield words


def test_commands_of_documents_exist():
    """Not executed, but read as the command line reads them: names, options that exist, values, as many words as are taken."""
    seen = set()
    # What environment.md shows are scripts for a shell, with loops and variables.
    for program, *words in (command for path in DOCUMENTS if path != ENVIRONMENT for command in commands(path)):
        assert program in PROGRAMS
        if program == "dasksvm":
            command = cli.main.commands[words[0]]
            given, left, _ = command.make_parser(click.Context(command)).parse_args(words[1:])
            assert not left, words
            assert not [param for param in command.params if param.required and given.get(param.name) is None], words
            seen.add(words[0])
    assert seen == set(cli.main.commands)


def test_commands_within_the_text_exist():
    found = [
        match for path in DOCUMENTS for match in re.findall(r"`(?:dasksvm|dask\s+svm)\s+(\w+)([^`]*)`", prose(path))
    ]
    assert len(found) > 5
    for name, rest in found:
        command = cli.main.commands[name]
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, (name, rest)


def test_pipelines_that_documents_name_exist():
    """Their commands too."""
    found = {
        match
        for path in DOCUMENTS
        for match in re.findall(r"`python\s+-m\s+pipelines\.(\w+)(?:\s+(\w+))?", prose(path))
    }
    assert len(found) > 5
    for name, command in found:
        main = importlib.import_module(f"pipelines.{name}").main
        assert not command or command in main.commands, (name, command)


def test_readme_is_a_front_door():
    """It is short, and has the two commands to set up on lines of their own; `.ci/run` takes the second from there."""
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    for line in ("pip install -e . && dasksvm quickstart", 'pip install -e ".[test]" && python -m pytest'):
        assert lines.count(line) == 1


# Links and names


@pytest.mark.parametrize("path", [*DOCUMENTS, CHANGELOG], ids=named)
def test_links_point_at_what_exists(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        assert other.is_relative_to(ROOT), target
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_files_within_the_text_exist(path):
    for name in re.findall(r"`((?:dasksvm|tests|docs|pipelines|deploy|\.ci|\.github)/[^`\s]*)[^`]*`", prose(path)):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_modules_functions_and_settings_within_the_text_exist(path):
    defaults = ROOT / "dasksvm" / "config" / "dasksvm.yaml"
    settings = yaml.safe_load(defaults.read_text())["dasksvm"]
    for name in re.findall(r"`dasksvm\.([\w.-]*\w)", prose(path)):
        assert name in settings or name == "yaml" or pkgutil.resolve_name(f"dasksvm.{name}"), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_rows_of_tables_have_as_many_cells_as_their_header(path):
    for table in re.findall(r"(?:^\|.*\n)+", prose(path), re.M):
        rows = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert len(set(rows)) == 1, table


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("solvers.md", KERNELS),
        ("active_learning.md", CRITERIA),
        ("files.md", FORMATS),
        ("solvers.md", SOLVERS.values()),
        ("command_line.md", SOLVERS),
    ],
)
def test_guides_name_every_choice(document, names):
    text = (ROOT / "docs" / document).read_text()
    for name in names:
        assert re.search(rf"`\"?{re.escape(name)}\"?`", text), name


def test_architecture_names_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "dasksvm"
    for path in package.rglob("__init__.py"):
        name = str(path.parent.relative_to(package))
        assert name == "." or f"`{name}`" in text, name


def test_architecture_lists_every_module_once():
    """Each is a row of the table of its package, with a few words on what it holds."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    (tables,) = re.findall(r"^## Modules\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    listed = [
        f"{folder}/{name}"
        for folder, table in re.findall(r"^### `(\S+)`\n(.*?)(?=^### |\Z)", tables, re.S | re.M)
        for name in re.findall(r"^\| `(\S+)` \| .*\w.* \|$", table, re.M)
    ]
    modules = [named(path) for path in (ROOT / "dasksvm").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(listed) == sorted(modules)
