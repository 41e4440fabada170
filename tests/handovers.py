"""Print which functions a reader meets who follows one fit on a cluster: `python -m tests.handovers`.

A hand-over is a call at which control passes to another module of the package. Listed are the distinct functions that are
called so, from `fit` to the model, in the order in which they are first called: first on the driver's thread, then on those of
the coordinator, then on those of the workers, then on the event loop, which answers messages. A function that begins on a
thread of its own counts as well. A function whose module was met and left before is marked: the reader goes back there.

Three lists are printed, each with its counts. The first has all functions. The second is the reader's path, which leaves out

- properties, since they read like attributes;
- special methods, since operators and statements call them, except constructors of classes with methods;
- what `dataclass` and `NamedTuple` generate, since it has no source to read;
- nested functions, lambdas and comprehensions, since they are read with the function around them;
- accessors, which are functions of a single `return` that call nothing else of the package: their names say what they return.

The third is the reader's path without the calls between two modules of the solver: a reader who takes the solver for a black box
with the interface of `Learner` does not need these.
"""

import ast
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from distributed import Client

from dasksvm import Dataset, LaSVC
from dasksvm.runtime import local_cluster
from tests.clusters import noisy

PACKAGE = str(Path(__file__).parent.parent / "dasksvm")
# Whose control it is, by the beginning of the name of a thread (workers of a local cluster are named); others are event loops.
ROLES = {"driver": ("MainThread",), "coordinator": ("coordinator-", "dasksvm-helper"), "worker": ("0-",)}
OTHER = "event loop"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class HandOver:
    """A function at which control passes to another module.

    Attributes
    ----------
    role : str
        Whose thread called it first.
    module, caller : str
        Its module, and that of the function which called it first, without the name of the package; "" if it begins a thread.
    code : code
    """

    role: str
    module: str
    caller: str
    code: CodeType


class Recorder:
    """Collects, over all threads, the functions of the package that are called from another module of it, or from outside."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, CodeType], HandOver] = {}
        # Functions that have called another function of the package.
        self.callers: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See an event of the interpreter."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
            return
        # The frame of a compiled function does not know its caller, which is the one below this function.
        caller = frame.f_back or sys._getframe(1)
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None:
            self.callers.add(caller.f_code)
        if caller is None or caller.f_code.co_filename != code.co_filename:
            role = role_of(threading.current_thread().name)
            above = "" if caller is None else module_of(caller.f_code)
            self.found.setdefault((role, code), HandOver(role, module_of(code), above, code))

    def in_order(self) -> list[HandOver]:
        """List each function once, by whose thread it is and then in the order of the calls."""
        listed: dict[CodeType, HandOver] = {}
        for role in (*ROLES, OTHER):
            for each in self.found.values():
                if each.role == role:
                    listed.setdefault(each.code, each)
        return list(listed.values())


def role_of(thread: str) -> str:
    return next((role for role, names in ROLES.items() if thread.startswith(names)), OTHER)


@cache
def module_of(code: CodeType) -> str:
    return ".".join(Path(code.co_filename).relative_to(PACKAGE).with_suffix("").parts)


# The reader's path


@cache
def definitions(file: str) -> dict[tuple[str, int], tuple[FunctionNode, ast.ClassDef | None]]:
    """Find the functions of a file, by name and first line, each with the class that it is a method of."""

    def within(node: ast.AST, owner: ast.ClassDef | None) -> Iterator[tuple[FunctionNode, ast.ClassDef | None]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                yield child, owner
            elif isinstance(child, ast.ClassDef):
                yield from within(child, child)

    found = within(ast.parse(Path(file).read_text()), None)
    return {
        (node.name, min(line.lineno for line in (node, *node.decorator_list))): (node, owner) for node, owner in found
    }


def is_read(code: CodeType, callers: set[CodeType]) -> bool:
    """Return whether a function is on the reader's path; the docstring of this module says why others are not."""
    node, owner = definitions(code.co_filename).get((code.co_name, code.co_firstlineno), (None, None))
    if node is None:  # nested, or a lambda or a comprehension
        return False
    if code.co_name.startswith("__"):
        return code.co_name == "__init__" and owner is not None and any(map(is_method, owner.body))
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    return not decorators & {"property", "cached_property"} and (code in callers or not is_single_return(node))


def is_method(statement: ast.stmt) -> bool:
    return isinstance(statement, FunctionNode) and not statement.name.startswith("__")


def is_single_return(node: FunctionNode) -> bool:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return len(body) == 1 and isinstance(body[0], ast.Return)


# The measurement


def hand_overs() -> Recorder:
    """Fit once to have everything loaded and compiled, then once more, recorded."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        data = noisy(Path(folder) / "data.zarr", rows=2000)
        fit(data)
        # Only threads that start from now on are seen: the second fit has a cluster of its own.
        threading.setprofile(recorder)
        try:
            fit(data, recorder)
        finally:
            threading.setprofile(None)
    return recorder


def fit(data: Dataset, recorder: Recorder | None = None) -> None:
    """Fit on a cluster in this process, watched from `fit` to the model."""
    with local_cluster(1, processes=False) as cluster, Client(cluster) as client:
        model = LaSVC(random_state=0, client=client)
        if recorder is not None:
            recorder.found.clear()
            sys.setprofile(recorder)
        try:
            model.fit(data)
        finally:
            sys.setprofile(None)


def print_path(title: str, path: Sequence[HandOver]) -> None:
    """Print the list of functions, and the three counts."""
    print(f"{title}\n")
    met: list[str] = []
    back, role = 0, ""
    for each in path:
        if each.role != role:
            role = each.role
            print(f"  {role}")
        again = each.module in met and met[-1] != each.module
        back += again
        met.append(each.module)
        print(f"    {'back to ' if again else '':8}{each.module}: {each.code.co_qualname}")
    print(f"\n{title}: {len(path)} functions, {len(set(met))} modules, {back} returns into a module already left\n")


def main() -> None:
    """Print all hand-overs, the reader's path, and the part of it that is outside of the solver."""
    recorder = hand_overs()
    every = recorder.in_order()
    path = [each for each in every if is_read(each.code, recorder.callers)]
    print_path("All hand-overs", every)
    print_path("The reader's path", path)
    inside = [each for each in path if each.module.startswith("solver.") and each.caller.startswith("solver.")]
    print_path("The reader's path, with the solver as a black box", [each for each in path if each not in inside])


if __name__ == "__main__":
    main()
