"""Print which functions a reader meets who follows one fit on a cluster: `python -m tests.handovers`.

Counted are the distinct functions of the package, from `fit` to the model, at which control passes to another module, in the
order in which they are first called, on all threads of a cluster in this process. A function whose module was met and left
before is marked: the reader goes back there.
"""

import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from distributed import Client

from dasksvm import Dataset, LaSVC
from dasksvm.runtime import local_cluster
from tests.clusters import noisy

PACKAGE = str(Path(__file__).parent.parent / "dasksvm")


class Recorder:
    """Collects, over all threads, the functions of the package that are called from another module of it, or from outside."""

    def __init__(self) -> None:
        self.found: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See an event of the interpreter."""
        code = frame.f_code
        if (
            event != "call"
            or code in self.found
            or not code.co_filename.startswith(PACKAGE)
            or code.co_name == "<module>"
        ):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != code.co_filename:
            module = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
            self.found[code] = ".".join(module.parts)


def hand_overs() -> list[tuple[str, str]]:
    """Fit once to have everything loaded and compiled, then once more; list the module and the name of each function."""
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
    return [(module, code.co_qualname) for code, module in recorder.found.items()]


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


def main() -> None:
    """Print the list and the three counts."""
    found = hand_overs()
    met: list[str] = []
    back = 0
    for module, name in found:
        again = module in met and met[-1] != module
        back += again
        met.append(module)
        print(f"{'back to ' if again else '':8}{module}: {name}")
    print(f"{len(found)} functions, {len(set(met))} modules, {back} returns into a module already left")


if __name__ == "__main__":
    main()
