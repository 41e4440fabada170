"""The import rules of the packages, and what importing dasksvm may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dasksvm

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dasksvm"
# From the top down: a package imports only from itself and from the packages after it.
LAYERS = ["cli", "estimators", "runtime", "training", "model", "data", "config", "solver"]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.relative_to(ROOT)
    for path in sorted(PACKAGE.rglob("*.py"))
}
MODULES = sorted(FILES.values())
PIPELINES = sorted(path.relative_to(ROOT) for path in (ROOT / "pipelines").rglob("*.py"))
# The modules of the names that `from dasksvm import ...` provides.
HOMES = dasksvm._HOMES


def imported(path, files=FILES):
    """List the modules that a module imports, also in functions and under TYPE_CHECKING; imported names are resolved."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (
                    full
                    if full in files
                    else HOMES.get(alias.name, "dasksvm")
                    if node.module == "dasksvm"
                    else node.module
                )


def layer(module):
    return LAYERS.index(module.split(".")[1])


@pytest.mark.parametrize("name", [name for name in FILES if name.count(".") >= 1 and name != "dasksvm.__main__"])
def test_imports_point_down(name):
    for other in imported(FILES[name]):
        top = other.split(".")[0]
        if top == "dasksvm" and other != "dasksvm":
            assert layer(other) >= layer(name), f"{name} imports {other}"
        assert top != "distributed" or name.startswith("dasksvm.runtime"), f"{name} imports {other}"
        if name.startswith("dasksvm.solver"):
            assert top in {*sys.stdlib_module_names, "numpy", "numba", "dasksvm"}, f"{name} imports {other}"
            assert other not in {"dasksvm", "time", "os", "pathlib", "threading", "socket"}, f"{name} imports {other}"


def cycle(graph):
    """Find a cycle of imports, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        for other in sorted(graph[name]):
            found = visit(other)
            if found:
                return found
        done.add(path.pop())
        return None

    return next((found for found in map(visit, sorted(graph)) if found), None)


def test_no_module_imports_itself_by_way_of_others():
    graph = {
        name: {other for other in imported(path) if other in FILES and other != name} for name, path in FILES.items()
    }
    assert cycle(graph) is None


def test_cycles_are_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_names_are_resolved(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "from dasksvm import train, runtime\nfrom dasksvm.solver import state\nfrom dasksvm.data import Dataset\n"
    )
    assert list(imported(path)) == [
        "dasksvm.estimators.training",
        "dasksvm.runtime",
        "dasksvm.solver.state",
        "dasksvm.data",
    ]


def test_few_files_lie_directly_in_the_solver():
    assert len(list((PACKAGE / "solver").glob("*.py"))) <= 6


def test_every_package_has_a_docstring():
    for folder in {path.parent for path in MODULES}:
        text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))
        assert text, f"{folder} has no docstring"


@pytest.mark.parametrize("path", [*MODULES, *PIPELINES], ids=str)
def test_modules_and_functions_stay_small(path):
    text = (ROOT / path).read_text()
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 80, node.name


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_solver_loads_without_dask_or_scikit_learn():
    code = (
        "import sys, dasksvm.solver.engine.learner_state; print(sorted({'dask', 'sklearn', 'zarr'} & set(sys.modules)))"
    )
    assert run(code) == "[]"


def test_importing_the_package_loads_nothing():
    assert run("import sys, dasksvm; print(sorted({'dask', 'numpy', 'numba', 'sklearn'} & set(sys.modules)))") == "[]"


def test_public_names_are_there():
    assert set(dasksvm.__all__) <= set(dir(dasksvm))
    for name in dasksvm.__all__:
        getattr(dasksvm, name)
    with pytest.raises(AttributeError, match="no attribute"):
        dasksvm.nothing  # noqa: B018
