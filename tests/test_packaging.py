"""Releases, hooks and workflows: what several files say of versions and tools agrees."""

import re
import tomllib
from datetime import date
from pathlib import Path

import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

import dasksvm

ROOT = Path(__file__).parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def project() -> dict:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def test_changelog_has_a_dated_section_for_the_version():
    """Newest first, each version with a date, and "Unreleased" above them."""
    first, *sections = re.findall(r"^## (.*)$", CHANGELOG.read_text(), re.M)
    assert first == "[Unreleased]"
    found = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)", section) for section in sections]
    assert all(found)
    versions = [(tuple(map(int, match.groups()[:3])), date.fromisoformat(match[4])) for match in found]
    assert versions == sorted(versions, reverse=True)
    assert ".".join(map(str, versions[0][0])) == dasksvm.__version__


def test_hooks_call_tools_that_are_pinned():
    pinned = dict(requirement.split("==") for requirement in project()["optional-dependencies"]["dev"])
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].split()[0] in pinned


def test_deployments_name_the_version():
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = {match for path in files for match in re.findall(r"dasksvm:(?:\$\{\w+:-)?(\d[\w.]*)", path.read_text())}
    assert found == {dasksvm.__version__}


def test_workflow_fits_its_schema(tmp_path):
    def check(file: Path) -> int:
        return (
            CliRunner().invoke(check_jsonschema, ["--builtin-schema", "vendor.github-workflows", str(file)]).exit_code
        )

    assert check(WORKFLOW) == 0
    (tmp_path / "wrong.yml").write_text(WORKFLOW.read_text().replace("runs-on", "run-on"))
    assert check(tmp_path / "wrong.yml") == 1


def test_workflow_runs_every_declared_version():
    declared = [name.split(" :: ")[-1] for name in project()["classifiers"] if re.search(r"Python :: 3\.", name)]
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == declared
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
