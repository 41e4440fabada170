"""Files of LIBSVM, what they say according to its documentation, and rows in its format."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.helpers import kernel_matrix

FOLDER = Path(__file__).parent
SHORT = {"linear": "linear", "polynomial": "poly", "rbf": "rbf", "sigmoid": "sigmoid"}
# How near a decision value is known.
NEAR = 1e-9


def values_of_text(path: Path, X: Any) -> tuple[NDArray[np.float64], list[int]]:
    """Evaluate a file: the value of each pair of classes in the order of the file, and the labels in that order."""
    head, body = path.read_text().split("SV\n")
    said = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
    labels, counts = [int(label) for label in said["label"]], [int(count) for count in said["nr_sv"]]
    rows = [line.split() for line in body.splitlines()]
    coefficients = np.array([row[: len(labels) - 1] for row in rows], float).reshape(len(rows), -1).T
    vectors = np.zeros((len(rows), X.shape[1]))
    for vector, row in zip(vectors, rows, strict=True):
        for pair in row[len(labels) - 1 :]:
            vector[int(pair.split(":")[0]) - 1] = float(pair.split(":")[1])
    gamma, coef0, degree = (float(said.get(name, ["1"])[0]) for name in ("gamma", "coef0", "degree"))
    K = kernel_matrix(SHORT[said["kernel_type"][0]], X, vectors, gamma, coef0, int(degree))
    of = np.repeat(np.arange(len(labels)), counts)
    values, rho = [], iter(map(float, said["rho"]))
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            part = K[:, of == i] @ coefficients[j - 1, of == i] + K[:, of == j] @ coefficients[i, of == j]
            values.append(part - next(rho))
    return np.array(values).T, labels


def write_rows(path: Path, X: Any, y: Any) -> Path:
    """Write rows as LIBSVM reads them."""
    lines = []
    for label, row in zip(y, X, strict=True):
        lines.append(f"{label} " + " ".join(f"{at}:{value:.17g}" for at, value in enumerate(row, 1) if value))
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(path: Path, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read rows of so many features, and their labels."""
    lines = [line.split() for line in path.read_text().splitlines()]
    X = np.zeros((len(lines), width))
    for row, line in zip(X, lines, strict=True):
        for pair in line[1:]:
            at, value = pair.split(":")
            row[int(at) - 1] = float(value)
    return X, np.array([int(line[0]) for line in lines])
