"""Make the reference files of this folder with LIBSVM's programs; see README.md.

`python -m tests.libsvm.make`
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.libsvm import FOLDER, NEAR, rows_of, values_of_text, write_rows
from tests.models import some_model

KERNELS = ("linear", "polynomial", "rbf", "sigmoid")
OPTIONS = ("-g", "0.3", "-r", "0.5", "-d", "2", "-c", "2", "-q")
# Models of two classes, and of pairs of several, that are written.
TWO, SEVERAL = range(8), range(20, 24)


def run(*command: Any) -> None:
    """Run one of LIBSVM's programs."""
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)


def labels(model: Path, rows: Path) -> NDArray[np.int64]:
    """Predict with `svm-predict`."""
    with tempfile.TemporaryDirectory() as folder:
        run("svm-predict", "-q", rows, model, Path(folder, "labels"))
        return np.loadtxt(Path(folder, "labels"), ndmin=1).astype(np.int64)


def trained() -> None:
    """Make the models of `svm-train`."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(80, 4)) * (rng.random((80, 4)) < 0.8), 4)
    for classes in (2, 4):
        # Labels in an order of their own: the file has them as they come.
        y = np.array([3, -1, 7, 2])[np.minimum((np.abs(X[:, 0]) * 2).astype(int), classes - 1)]
        write_rows(FOLDER / f"rows-{classes}.txt", X, y)
        for number, kernel in enumerate(KERNELS):
            train(f"trained-{kernel}-{classes}", classes, "-t", number, *OPTIONS)
    train("trained-nu", 2, "-s", 1, "-n", 0.2, *OPTIONS)
    train("trained-probability", 2, "-b", 1, *OPTIONS)


def train(name: str, classes: int, *options: Any) -> None:
    """Train a model, and predict its own rows."""
    rows, model = FOLDER / f"rows-{classes}.txt", FOLDER / f"{name}.model"
    run("svm-train", *options, rows, model)
    np.savetxt(FOLDER / f"{name}.labels", labels(model, rows), "%d")


def written() -> None:
    """Write models, and let `svm-predict` read them."""
    for seed in (*TWO, *SEVERAL):
        classes = 2 if seed in TWO else 3
        model, X = some_model(seed, classes=classes, pairwise=True, text=False, scaled=False)
        path, rows = FOLDER / f"written-{seed}.model", FOLDER / f"written-{seed}.rows"
        model.to_libsvm(path)
        write_rows(rows, X[:6], np.zeros(6, np.int64))
        found: dict[str, Any] = {"labels": labels(path, rows).tolist()}
        if classes == 2:
            values, order = values_of_text(path, rows_of(rows, model.width)[0])
            found["values"] = values[:, 0].tolist()
            for at, value in enumerate(found["values"]):
                confirm(path, rows, at, value, order[0])
        (FOLDER / f"written-{seed}.json").write_text(json.dumps(found, indent=1) + "\n")


def confirm(model: Path, rows: Path, at: int, value: float, first: int) -> None:
    """Raise unless LIBSVM's decision value of a row is a value: shift the threshold to both sides of it."""
    text = model.read_text()
    found = re.search(r"^rho (\S+)$", text, re.M)
    assert found is not None
    near = NEAR * max(1.0, abs(value))
    for shift, positive in ((value - near, True), (value + near, False)):
        with tempfile.TemporaryDirectory() as folder:
            shifted = Path(folder, "model")
            shifted.write_text(re.sub(r"^rho .*$", f"rho {float(found[1]) + shift:.17g}", text, flags=re.M))
            if (labels(shifted, rows)[at] == first) != positive:
                raise AssertionError(f"{model.name}: the decision value of row {at} is not {value}")


if __name__ == "__main__":
    trained()
    written()
