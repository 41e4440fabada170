"""Write a KernelModel as a LIBSVM text file, and read such files."""

import math
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.array_file import replacing
from dasksvm.data.blocks import MOST_FEATURES
from dasksvm.data.chunked import csr, is_sparse
from dasksvm.data.paths import local
from dasksvm.data.statistics import Scaling
from dasksvm.model.formats import ModelFormat
from dasksvm.model.kernel_model import KernelModel
from dasksvm.model.native import MOST_DEGREE
from dasksvm.model.pair_layout import Values, by_class, by_pair
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.registry import look_up

LARGEST = MOST_FEATURES
# Bounds the memory that a small malicious file can claim: there are coefficients for each pair of classes and support vector.
MOST_CLASSES = 256
# With at least this share of non-zeros, support vectors from a file are made dense.
DENSE_SHARE = 0.25
# Keys of the header, each allowed at most once. A KernelModel has no use for those that are ignored.
HEADER = {"svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label", "nr_sv"}
IGNORED = {"probA", "probB", "prob_density_marks"}


def write(model: KernelModel, path: str | Path) -> None:
    """Write a model in the format of `svm-predict`; an existing file is replaced when all is written."""
    theirs = model.kernel.formula.libsvm
    if theirs is None:
        known = ", ".join(_kernel_names())
        raise ValueError(f"{path}: LIBSVM's format has no kernel {model.kernel.name!r}. It has {known}.")
    if len(model.classes) > 2 and not model.pairwise:
        raise ValueError(
            f"{path}: LIBSVM's format needs a problem for each pair of classes, but this model has one for each class: "
            'train with decision_function_shape="ovo".'
        )
    labels = _labels(model.classes, path)
    model = without_scaling(model)
    # With two classes, a positive value means the second class here and the first class in the file.
    labels = labels[::-1] if len(labels) == 2 else labels
    layout = by_class(model.coefficients, len(labels))
    vectors: Any = model.support_vectors
    vectors = sp.csr_matrix(vectors, copy=is_sparse(vectors))
    vectors.sum_duplicates()
    for values in (vectors.data, layout.coefficients, model.intercepts):
        if not np.isfinite(values).all():
            raise ValueError(f"{path}: this model has values that are not finite.")
    header: list[tuple[str, Any]] = [("svm_type", "c_svc"), ("kernel_type", theirs.name)]
    header += [(name, _digits(getattr(model.kernel, name))) for name in model.kernel.formula.parameters]
    header += [("nr_class", len(labels)), ("total_sv", len(layout.rows))]
    header += [("rho", _joined(-model.intercepts)), ("label", _joined(labels)), ("nr_sv", _joined(layout.counts))]
    with replacing(path) as file:
        file.write("".join(f"{name} {value}\n" for name, value in header).encode() + b"SV\n")
        for line in _lines(vectors[layout.rows], layout.coefficients):
            file.write(line.encode())


def _kernel_names() -> dict[str, str]:
    """Give the kernels that LIBSVM's format has: its name of each, and the name in this package."""
    return {formula.libsvm.name: name for name, formula in KERNELS.items() if formula.libsvm is not None}


def _labels(classes: NDArray[Any], path: str | Path) -> Ints:
    whole = classes.dtype.kind in "iu" or (classes.dtype.kind == "f" and np.all(classes == np.rint(classes)))
    if not whole or classes.min() < -LARGEST - 1 or classes.max() > LARGEST:
        raise ValueError(
            f"{path}: LIBSVM's labels must be integers of 32 bits; those of this model are {classes.tolist()}."
        )
    return classes.astype(np.int64)


def without_scaling(model: KernelModel) -> KernelModel:
    """Return a model without scaling that makes the same decisions for unscaled rows.

    Raises
    ------
    ValueError
        If the kernel does not allow this; see `WITHOUT_SCALING`.
    """
    if model.scaling is None:
        return model
    theirs = model.kernel.formula.libsvm
    if theirs is None:
        raise ValueError(f"the scaling cannot be included in a model with kernel {model.kernel.name!r}.")
    found = look_up(WITHOUT_SCALING, "kernel of LIBSVM", theirs.name)(model, model.scaling)
    if found is None:
        raise ValueError(
            "this model has a scaling of the features, which LIBSVM's format does not support and which cannot be included in a "
            f"model with kernel {model.kernel.name}: scale the rows before training, or use to_sklearn()."
        )
    return found


def _with_scaled_gamma(model: KernelModel, scaling: Scaling) -> KernelModel | None:
    """Include a scaling with one factor in γ: a function of distances ignores the offset."""
    factor = scaling.factor
    if not np.all(np.abs(factor) == np.abs(factor[0])):
        return None
    kernel = replace(model.kernel, gamma=model.kernel.gamma * float(factor[0]) ** 2)
    return replace(model, kernel=kernel, scaling=None)


def _with_scaled_vectors(model: KernelModel, scaling: Scaling) -> KernelModel | None:
    """Include a scaling without offset in the support vectors: Σ f² x·s is the inner product of x and f² s."""
    return None if scaling.offset.any() else _with_scaled_vectors_and_intercepts(model, scaling)


def _with_scaled_vectors_and_intercepts(model: KernelModel, scaling: Scaling) -> KernelModel | None:
    """Include a scaling in the support vectors and the intercepts.

    The inner product of scaled rows, Σ f² (x - o)(s - o), is the inner product of x and f² (s - o) plus a term that does not
    depend on x, which goes into the intercepts. Sparse support vectors would become dense by an offset.
    """
    offset, factor = scaling.offset, scaling.factor
    shifts = bool(offset.any())
    vectors: Any = model.support_vectors
    if is_sparse(vectors):
        if shifts:
            return None
        vectors = sp.csr_matrix(vectors, dtype=np.float64) @ sp.diags_array(factor**2, format="csr")
    else:
        vectors = (vectors - offset) * factor**2
    intercepts = model.intercepts - model.coefficients @ (vectors @ offset) if shifts else model.intercepts
    return replace(model, support_vectors=vectors, intercepts=intercepts, scaling=None)


# How a model with each of LIBSVM's kernels does without its scaling; the functions return None if it cannot.
WITHOUT_SCALING: dict[str, Callable[[KernelModel, Scaling], KernelModel | None]] = {
    "linear": _with_scaled_vectors_and_intercepts,
    "polynomial": _with_scaled_vectors,
    "rbf": _with_scaled_gamma,
    "sigmoid": _with_scaled_vectors,
}


def _lines(vectors: Any, coefficients: Values) -> Iterator[str]:
    """Yield the line of each support vector; the first names the last feature even if it is 0, to keep the number of features."""
    count, width = vectors.shape
    unnamed = vectors.indices.max(initial=-1) < width - 1
    for row in range(count):
        own = slice(vectors.indptr[row], vectors.indptr[row + 1])
        features, values = (vectors.indices[own] + 1).tolist(), vectors.data[own].tolist()
        if row == 0 and unnamed:
            features, values = [*features, width], [*values, 0.0]
        weights = "%.17g " * len(coefficients) % tuple(coefficients[:, row].tolist())
        yield (
            weights + "%d:%.17g " * len(values) % tuple(chain.from_iterable(zip(features, values, strict=True))) + "\n"
        )


def _digits(value: float) -> str:
    return f"{value:.17g}"


def _joined(values: NDArray[Any]) -> str:
    return " ".join(map(_digits, values.tolist()))


def read(path: str | Path, features: int | None = None) -> KernelModel:
    """Read a model of LIBSVM.

    Parameters
    ----------
    path : str or Path
    features : int, optional
        Number of features, which the file does not contain. By default the largest feature number of a support vector.

    Raises
    ------
    ValueError
        If the file is damaged, or is not a classifier with a known kernel; the message names the line.
    """
    path = local(path)
    try:
        with path.open("rb") as file:
            return _ModelReader(file).model(features)
    except ValueError as error:
        raise ValueError(f"{path} is not a valid LIBSVM model: {error}") from error


class _ModelReader:
    """A file being read. It may come from an untrusted source, so that no number in it is used before it is checked."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = file
        self._number = 0
        self._header: dict[str, tuple[int, list[bytes]]] = {}

    def model(self, features: int | None) -> KernelModel:
        self._read_header()
        kernel = self._kernel()
        labels = np.array(self._whole("label", -LARGEST - 1), np.int64)
        (classes,), (total,) = self._whole("nr_class", 2, count=1), self._whole("total_sv", 0, count=1)
        if classes != len(labels) or len(np.unique(labels)) != classes or classes > MOST_CLASSES:
            raise self._bad("label", f"expected 2 to {MOST_CLASSES} labels, as many as nr_class, all different")
        counts = np.array(self._whole("nr_sv", 0, count=classes), np.int64)
        if counts.sum() != total:
            raise self._bad("nr_sv", f"the numbers of support vectors do not add up to {total}")
        rho = np.array(self._real("rho", count=classes * (classes - 1) // 2))
        coefficients, vectors = self._support_vectors(classes - 1, total, features)
        order = np.argsort(labels)
        pairs, intercepts = _in_order(by_pair(coefficients, counts), -rho, order)
        return KernelModel(kernel, vectors, pairs, intercepts, labels[order], None, classes > 2)

    def _read_header(self) -> None:
        for line in self._lines:
            self._number += 1
            name, *words = line.split() or [b""]
            key = name.decode("ascii", "replace")
            if key == "SV":
                return
            if key not in HEADER | IGNORED or key in self._header:
                raise ValueError(f"line {self._number}: {key[:40]!r} is not expected here")
            self._header[key] = self._number, words
        raise ValueError("it ends before its support vectors")

    def _bad(self, key: str, reason: str) -> ValueError:
        return ValueError(f"line {self._header[key][0]}: {key}: {reason}")

    def _words(self, key: str, count: int | None) -> list[bytes]:
        if key not in self._header:
            raise ValueError(f"its header has no {key}")
        words = self._header[key][1]
        if not words or (count is not None and len(words) != count):
            raise self._bad(key, f"{len(words)} values, expected {'at least one' if count is None else count}")
        return words

    def _whole(self, key: str, least: int, most: int = LARGEST, count: int | None = None) -> list[int]:
        try:
            numbers = [_integer(word) for word in self._words(key, count)]
        except _InvalidWord as error:
            raise self._bad(key, str(error)) from None
        if min(numbers) < least or max(numbers) > most:
            raise self._bad(key, f"a value is not in the range {least} to {most}")
        return numbers

    def _real(self, key: str, count: int) -> list[float]:
        try:
            return [_finite(word) for word in self._words(key, count)]
        except _InvalidWord as error:
            raise self._bad(key, str(error)) from None

    def _kernel(self) -> Kernel:
        kind, name = (self._words(key, 1)[0].decode("ascii", "replace") for key in ("svm_type", "kernel_type"))
        if kind not in ("c_svc", "nu_svc"):
            raise self._bad("svm_type", f"{kind[:40]!r} is not a classifier")
        names = _kernel_names()
        if name not in names:
            raise self._bad("kernel_type", f"{name[:40]!r} is not one of {', '.join(names)}")
        parameters: dict[str, Any] = {}
        for key in KERNELS[names[name]].parameters:
            (parameters[key],) = self._whole(key, 1, MOST_DEGREE, 1) if key == "degree" else self._real(key, 1)
        if parameters.get("gamma", 0.0) < 0:
            raise self._bad("gamma", "it is negative")
        return Kernel(names[name], **parameters)

    def _support_vectors(self, rows: int, total: int, features: int | None) -> tuple[Values, Any]:
        """Read the coefficients, shape (rows, total), and the support vectors, shape (total, d)."""
        weights, values, columns, ends = array("d"), array("d"), array("q"), array("q", [0])
        for line in self._lines:
            self._number += 1
            try:
                words = line.split()
                if len(words) < rows or len(ends) > total:
                    raise _InvalidWord("this is not a line for a support vector")
                pairs = [word.split(b":") for word in words[rows:]]
                if any(len(pair) != 2 for pair in pairs):
                    raise _InvalidWord("a value is not of the form feature:value")
                weights.extend([_finite(word) for word in words[:rows]])
                values.extend([_finite(value) for _, value in pairs])
                own = [_integer(feature) for feature, _ in pairs]
                if own and (own[0] < 1 or own[-1] > LARGEST or own != sorted(set(own))):
                    raise _InvalidWord(f"feature numbers are not increasing and in the range 1 to {LARGEST}")
            except _InvalidWord as error:
                raise ValueError(f"line {self._number}: {error}") from None
            columns.extend(own)
            ends.append(len(values))
        if len(ends) - 1 != total:
            raise ValueError(f"it ends after {len(ends) - 1} of {total} support vectors")
        found = max(columns, default=0)
        width = found if features is None else features
        if width < max(found, 1):
            raise ValueError(f"its support vectors have {found} features, more than the {width} that were expected")
        indices = (np.array(columns, np.int64) - 1).astype(np.int32)
        vectors = csr(np.array(values, np.float64), indices, np.array(ends, np.int64), width)
        dense = total > 0 and vectors.nnz >= DENSE_SHARE * total * width
        coefficients = np.ascontiguousarray(np.array(weights, np.float64).reshape(total, rows).T)
        return coefficients, vectors.toarray() if dense else vectors


class _InvalidWord(ValueError):
    """A word of a line is invalid."""


def _integer(word: bytes) -> int:
    if not word.lstrip(b"+-").isdigit() or len(word) > 20:
        raise _InvalidWord(f"{word[:40].decode('ascii', 'replace')!r} is not an integer")
    try:
        return int(word)
    except ValueError:
        raise _InvalidWord(f"{word.decode('ascii', 'replace')!r} is not an integer") from None


def _finite(word: bytes) -> float:
    try:
        value = float(word) if b"_" not in word else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _InvalidWord(f"{word[:40].decode('ascii', 'replace')!r} is not a finite number")
    return value


def _in_order(pairs: Values, intercepts: Values, order: Ints) -> tuple[Values, Values]:
    """Reorder the problems of pairs of classes from the file's order of classes to `order`."""
    place = np.argsort(order)
    first, second = np.triu_indices(len(order), 1)
    low, high = np.minimum(place[first], place[second]), np.maximum(place[first], place[second])
    sign = np.where(place[first] < place[second], 1.0, -1.0)
    if len(order) == 2:
        sign = -sign
    of = np.lexsort((high, low))
    return (sign[:, None] * pairs)[of], (sign * intercepts)[of]


LIBSVM = ModelFormat(write, read)
