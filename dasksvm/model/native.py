"""dasksvm's own file format for a KernelModel: a file of checked arrays.

The array `feature_names` exists only if the model has feature names. Readers look up the arrays they know by name and ignore
others, so that versions of this package without feature names can read these files too.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data import array_file
from dasksvm.data.blocks import MOST_FEATURES
from dasksvm.data.chunked import csr, is_sparse
from dasksvm.data.paths import local
from dasksvm.data.statistics import Scaling
from dasksvm.model.formats import ModelFormat
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS

KIND, VERSION = "model", 3
# Largest degree of a polynomial kernel: powers are computed by repeated multiplication.
MOST_DEGREE = 1000


def save(model: KernelModel, path: str | Path) -> None:
    """Write a model to a file, after checking that it can be read; an existing file is replaced when all is written."""
    vectors: Any = model.support_vectors
    about = {
        "kernel": {
            "name": model.kernel.name,
            "gamma": float(model.kernel.gamma),
            "coef0": float(model.kernel.coef0),
            "degree": int(model.kernel.degree),
        },
        "width": model.width,
        "sparse": bool(is_sparse(vectors)),
        "scaled": model.scaling is not None,
        "pairwise": bool(model.pairwise),
    }
    classes = model.classes.astype(str) if model.classes.dtype.kind in "OT" else model.classes
    arrays = {"classes": classes, "coefficients": model.coefficients, "intercepts": model.intercepts}
    if is_sparse(vectors):
        vectors = sp.csr_matrix(vectors, copy=not vectors.has_canonical_format)
        vectors.sum_duplicates()
        arrays |= {name: getattr(vectors, name) for name in ("data", "indices", "indptr")}
    else:
        arrays["support_vectors"] = vectors
    if model.scaling is not None:
        arrays |= {"offset": model.scaling.offset, "factor": model.scaling.factor}
    if model.feature_names is not None:
        # Stored as JSON, since a text array would need the length of the longest name for every name.
        arrays["feature_names"] = np.frombuffer(json.dumps(model.feature_names).encode(), np.uint8)
    try:
        _model(about, arrays)
    except ValueError as error:
        raise ValueError(f"{path}: this model cannot be written: {error}.") from error
    array_file.write(path, KIND, VERSION, about, arrays)


def load(path: str | Path) -> KernelModel:
    """Read a model from a file.

    Raises
    ------
    ValueError
        If the file is not a model, is damaged, or has another format version.
    """
    path = local(path)
    try:
        about, arrays = array_file.read(path, KIND, (VERSION,))
        return _model(about, arrays)
    except KeyError as error:
        raise ValueError(f"{path} is not a valid dasksvm model: {error} is missing") from error
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a valid dasksvm model: {error}") from error


def _model(about: Mapping[str, Any], arrays: array_file.Arrays) -> KernelModel:
    sparse, scaled, pairwise = (_flag(about, name) for name in ("sparse", "scaled", "pairwise"))
    width = about["width"]
    if type(width) is not int or not 0 < width <= MOST_FEATURES:
        raise ValueError(f"it has an invalid number of features: {width!r}")
    kernel, classes = _kernel(about["kernel"]), arrays["classes"]
    _check_classes(classes)
    if sparse:
        vectors = csr(_numbers(arrays, "data"), arrays["indices"], arrays["indptr"], width)
    else:
        vectors = _numbers(arrays, "support_vectors")
    coefficients, intercepts = arrays["coefficients"], arrays["intercepts"]
    if not coefficients.dtype == intercepts.dtype == np.float64:
        raise ValueError("its coefficients or intercepts are not float64")
    if pairwise and len(classes) == 2:
        raise ValueError("it is marked as pairwise, but has only two classes")
    pairs = len(classes) * (len(classes) - 1) // 2
    problems = 1 if len(classes) == 2 else pairs if pairwise else len(classes)
    if intercepts.shape != (problems,):
        raise ValueError("its number of decision functions does not match its classes")
    if vectors.ndim != 2 or vectors.shape[1] != width or coefficients.shape != (problems, vectors.shape[0]):
        raise ValueError("the shapes of its arrays do not match")
    # An intercept is infinite if all examples so far belong to one class.
    if not np.isfinite(coefficients).all() or np.isnan(intercepts).any():
        raise ValueError("its coefficients or intercepts are not finite")
    scaling = Scaling(arrays["offset"], arrays["factor"]) if scaled else None
    if scaling is not None:
        _check_scaling(scaling, width, sparse)
    names = _feature_names(arrays["feature_names"], width) if "feature_names" in arrays else None
    return KernelModel(kernel, vectors, coefficients, intercepts, classes, scaling, pairwise, names)


def _feature_names(text: NDArray[Any], width: int) -> tuple[str, ...]:
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError("its feature names are not text")
    try:
        names = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise ValueError("its feature names are not valid JSON") from error
    if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
        raise ValueError(f"its feature names are not a list of {width} names")
    return tuple(names)


def _flag(about: Mapping[str, Any], name: str) -> bool:
    if not isinstance(about[name], bool):
        raise ValueError(f"{name} is {about[name]!r}, not true or false")
    return bool(about[name])


def _kernel(stored: Mapping[str, Any]) -> Kernel:
    name, gamma, coef0, degree = (stored[key] for key in ("name", "gamma", "coef0", "degree"))
    if name not in KERNELS:
        raise ValueError(f"it has an unknown kernel {name!r}")
    for number in (gamma, coef0):
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"its kernel has the invalid parameter {number!r}")
    if gamma < 0 or type(degree) is not int or not 1 <= degree <= MOST_DEGREE:
        raise ValueError(f"its kernel has the invalid parameters gamma={gamma!r}, degree={degree!r}")
    return Kernel(name, float(gamma), float(coef0), degree)


def _check_classes(classes: NDArray[Any]) -> None:
    if classes.ndim != 1 or len(classes) < 2:
        raise ValueError("it has fewer than two classes")
    if not np.all(classes[1:] > classes[:-1]):
        raise ValueError("its classes are not sorted and unique")


def _numbers(arrays: array_file.Arrays, name: str) -> NDArray[Any]:
    values = arrays[name]
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the array {name} has the type {values.dtype}, which is not numeric")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"the array {name} has values that are not finite")
    return values


def _check_scaling(scaling: Scaling, width: int, sparse: bool) -> None:
    for values in (scaling.offset, scaling.factor):
        if values.dtype != np.float64 or values.shape != (width,) or not np.isfinite(values).all():
            raise ValueError("its scaling does not match its features")
    if sparse and scaling.offset.any():
        raise ValueError("its scaling would shift sparse rows")


NATIVE = ModelFormat(save, load)
