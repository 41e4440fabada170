"""The benchmark tasks: data sets of the papers, read from a folder that is not part of the project."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """Training and test data with the parameters that the papers use."""

    name: str
    X: Any
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    parameters: dict[str, float]


def _against_rest(labels: NDArray[Any], label: int) -> NDArray[np.int64]:
    return np.where(labels == label, 1, -1)


def mnist8(folder: Path, rows: int | None) -> Task:
    """MNIST's digit 8 against the rest, pixels / 255."""
    z = np.load(folder / "mnist.npz")
    train, test = ((z[f"X_{part}"] / np.float32(255)).astype(np.float32) for part in ("train", "test"))
    y, y_test = _against_rest(z["y_train"], 8), _against_rest(z["y_test"], 8)
    return Task("mnist8", train[:rows], y[:rows], test, y_test, {"C": 10.0, "gamma": 0.02})


def mnist04(folder: Path, rows: int | None) -> Task:
    """MNIST's digits 0 to 4 against 5 to 9, pixels 0 to 255, with σ = 3,500 and C of paper 4's table 1."""
    z = np.load(folder / "mnist.npz")
    train, test = (z[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
    y, y_test = (np.where(z[f"y_{part}"] < 5, 1, -1) for part in ("train", "test"))
    return Task("mnist-04", train[:rows], y[:rows], test, y_test, {"C": 50.0, "gamma": 1 / (2 * 3500.0**2)})


def adult(folder: Path, rows: int | None) -> Task:
    """Adult as a9a, dense."""
    z = np.load(folder / "adult_a9a.npz")

    def dense(part: str) -> NDArray[np.float32]:
        arrays = (z[f"X_{part}_data"], z[f"X_{part}_indices"], z[f"X_{part}_indptr"])
        return np.asarray(sp.csr_matrix(arrays, shape=tuple(z[f"X_{part}_shape"])).toarray(), np.float32)

    X, y = dense("train")[:rows], z["y_train"].astype(np.int64)[:rows]
    return Task("adult", X, y, dense("test"), z["y_test"].astype(np.int64), {"C": 100.0, "gamma": 0.005})


def forest(folder: Path, rows: int | None) -> Task:
    """Forest cover types, class 2 against the rest; 100,000 rows by default."""
    z = np.load(folder / "covtype.npz")
    X = z["X"].astype(np.float64)
    X[:, :10] = (X[:, :10] - X[:, :10].mean(axis=0)) / X[:, :10].std(axis=0)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[: rows or 100_000], order[-(20_000 if (rows or 0) < 500_000 else 50_000) :]
    y = _against_rest(z["y"], 2)
    values = X.astype(np.float32)
    return Task("forest", values[train], y[train], values[test], y[test], {"C": 3.0, "gamma": 1.0})


def letter_a(folder: Path, rows: int | None) -> Task:
    """Letter recognition, A against the rest, raw."""
    z = np.load(folder / "letter.npz")
    y, y_test = _against_rest(z["y_train"], 0), _against_rest(z["y_test"], 0)
    train, test = (z[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
    return Task("letter-A", train[:rows], y[:rows], test, y_test, {"C": 10.0, "gamma": 0.05})


def reuters(folder: Path, rows: int | None) -> Task:
    """Reuters-21578 in the papers' variant: money-fx against the rest, tf-idf, dense."""
    z = np.load(folder / "reuters_modapte.npz")
    keys = set(z.files)
    wanted = z["has_topic_train"].astype(bool)

    def dense(part: str) -> NDArray[np.float32]:
        arrays = (z[f"X_{part}_data"], z[f"X_{part}_indices"], z[f"X_{part}_indptr"])
        return np.asarray(sp.csr_matrix(arrays, shape=tuple(z[f"X_{part}_shape"])).toarray(), np.float32)

    assert "y_train" in keys
    X, y = dense("train")[wanted][:rows], z["y_train"][wanted].astype(np.int64)[:rows]
    return Task("reuters", X, y, dense("test"), z["y_test"].astype(np.int64), {"C": 1.0, "gamma": 0.5})


def mnist(folder: Path, rows: int | None) -> Task:
    """MNIST's ten digits, pixels / 255."""
    z = np.load(folder / "mnist.npz")
    train, test = ((z[f"X_{part}"] / np.float32(255)).astype(np.float32) for part in ("train", "test"))
    return Task(
        "mnist",
        train[:rows],
        z["y_train"].astype(np.int64)[:rows],
        test,
        z["y_test"].astype(np.int64),
        {"C": 10.0, "gamma": 0.02},
    )


def _raw(name: str) -> Callable[[Path, int | None], Task]:
    def read(folder: Path, rows: int | None) -> Task:
        """All classes, features as they are."""
        z = np.load(folder / f"{name}.npz")
        train, test = (z[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
        return Task(name, train[:rows], z["y_train"].astype(np.int64)[:rows], test, z["y_test"].astype(np.int64), {})

    return read


def damp(folder: Path, rows: int | None) -> Task:
    """Damp grey soil of satimage, its hardest class, against the rest; C and γ by 4-fold cross-validation (error 5.2 %)."""
    all_classes = _raw("satimage")(folder, rows)
    y, y_test = (_against_rest(labels, 1) for labels in (all_classes.y, all_classes.y_test))
    return Task("satimage-damp", all_classes.X, y, all_classes.X_test, y_test, {"C": 3.0, "gamma": 0.001})


def digits(folder: Path, rows: int | None) -> Task:
    """scikit-learn's small digits, pixels / 16, 1,200 rows to train on."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = (X[order] / 16).astype(np.float32), y[order].astype(np.int64)
    return Task("digits", X[:1200][:rows], y[:1200][:rows], X[1200:], y[1200:], {})


def banana(folder: Path, rows: int | None) -> Task:
    """Rätsch's banana, 4,000 rows to train on; the papers split it at random (`split`)."""
    z = np.load(folder / "banana.npz")
    X, y = z["X"].astype(np.float32), np.where(z["y"] > 0, 1, -1)
    return Task("banana", X[:4000][:rows], y[:4000][:rows], X[4000:], y[4000:], {"C": 10.0, "gamma": 1.0})


TASKS: dict[str, Callable[[Path, int | None], Task]] = {
    "mnist8": mnist8,
    "mnist-04": mnist04,
    "adult": adult,
    "forest": forest,
    "letter-A": letter_a,
    "banana": banana,
    "reuters": reuters,
    "mnist": mnist,
    "letter": _raw("letter"),
    "satimage": _raw("satimage"),
    "satimage-damp": damp,
    "digits": digits,
}


def load(name: str, folder: Path) -> Task:
    """Load a task by name; `forest-25000` is forest with its first 25,000 rows, and so on."""
    if name in TASKS:
        return TASKS[name](folder, None)
    kind, _, rows = name.rpartition("-")
    if kind not in TASKS or not rows.isdigit():
        raise ValueError(f"unknown task {name!r}: it must be one of {', '.join(TASKS)}, with -N for its first N rows.")
    return TASKS[kind](folder, int(rows))


def split(task: Task, seed: int) -> Task:
    """Split all rows of a task again at random, into as many for training and for testing as before."""
    X, y = np.concatenate([task.X, task.X_test]), np.concatenate([task.y, task.y_test])
    order = np.random.default_rng(seed).permutation(len(X))
    mine, others = order[: len(task.X)], order[len(task.X) :]
    return Task(task.name, X[mine], y[mine], X[others], y[others], task.parameters)


def noisy(task: Task, share: float, seed: int) -> Task:
    """Give some training examples the label of another class."""
    rng, (classes, codes) = np.random.default_rng([seed, 1]), np.unique(task.y, return_inverse=True)
    wrong = rng.random(len(codes)) < share
    codes[wrong] = (codes[wrong] + rng.integers(1, len(classes), int(wrong.sum()))) % len(classes)
    return Task(task.name, task.X, classes[codes], task.X_test, task.y_test, task.parameters)
