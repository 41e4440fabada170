"""The walls of the design, and what an import may cost."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dasksvm"
LAYERS = [
    ["cli", "__main__"],
    ["commands"],
    ["console", "labelling"],
    ["estimators"],
    ["runtime", "local"],
    ["predictionfile"],
    ["prediction"],
    ["data", "model", "modelfile", "libsvmfile", "sklearnmodel", "pairlayout", "callbacks", "snapshots"],
    ["config", "arrayfile", "blas", "metrics", "paths", "timings", "workspaces"],
    ["solver"],
]
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))
PIPELINES = sorted(path.relative_to(ROOT) for path in (ROOT / "pipelines").rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def layer(module):
    parts = module.removesuffix(".py").replace("/", ".").split(".")
    name = parts[1] if len(parts) > 1 else "dasksvm"
    return next((at for at, names in enumerate(LAYERS) if name in names), None)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_down(path):
    if path.name == "__init__.py" and path.parent == Path("dasksvm"):
        return
    own = layer(str(path))
    assert own is not None, f"{path} belongs to no layer"
    for name in imported(path):
        if name.startswith("dasksvm."):
            assert layer(name) >= own, f"{path} imports {name}"
        assert name.split(".")[0] != "distributed" or own == layer("dasksvm.runtime"), f"{path} imports {name}"
        if own == layer("dasksvm.solver"):
            assert name.split(".")[0] in {*sys.stdlib_module_names, "numpy", "numba", "dasksvm"}, (
                f"{path} imports {name}"
            )
            assert name not in {"time", "os", "pathlib", "threading", "socket"}, f"{path} imports {name}"


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
    code = "import sys, dasksvm.solver.snapshot; print(sorted({'dask', 'sklearn', 'zarr'} & set(sys.modules)))"
    assert run(code) == "[]"


def test_importing_the_package_loads_nothing():
    assert run("import sys, dasksvm; print(sorted({'dask', 'numpy', 'numba', 'sklearn'} & set(sys.modules)))") == "[]"


def test_public_names_are_there():
    import dasksvm

    assert set(dasksvm.__all__) <= set(dir(dasksvm))
    for name in dasksvm.__all__:
        getattr(dasksvm, name)
    with pytest.raises(AttributeError, match="no attribute"):
        dasksvm.nothing  # noqa: B018
