"""A KernelModel as a file: arrays in NumPy's npz, a header in JSON, nothing pickled."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dasksvm.data.statistics import Scaling
from dasksvm.model import KernelModel
from dasksvm.solver.kernels import KERNELS, Kernel

FORMAT, VERSION = "dasksvm-model", 2
# Version 1 has no pairs of classes.
READABLE = (1, 2)


def save(model: KernelModel, path: str | Path) -> None:
    """Write a model to a file; what was there is replaced when all is written."""
    vectors = model.support_vectors
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kernel": {name: getattr(model.kernel, name) for name in ("name", "gamma", "coef0", "degree")},
        "sparse": bool(sp.issparse(vectors)),
        "shape": list(vectors.shape),
        "scaled": model.scaling is not None,
        "pairwise": model.pairwise,
    }
    arrays = {"coefficients": model.coefficients, "intercepts": model.intercepts, "classes": model.classes}
    if sp.issparse(vectors):
        arrays |= {name: getattr(vectors, name) for name in ("data", "indices", "indptr")}
    else:
        arrays["support_vectors"] = vectors
    if model.scaling is not None:
        arrays |= {"offset": model.scaling.offset, "factor": model.scaling.factor}
    if model.classes.dtype == object:
        arrays["classes"] = model.classes.astype(str)
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path) -> KernelModel:
    """Read a model from a file.

    Raises
    ------
    ValueError
        If the file is no model, a damaged one, or one of another version.
    """
    try:
        # NumPy leaves a file open that it was given by name and cannot read.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            if header.get("format") != FORMAT:
                raise ValueError("its header is another format's")
            if header["version"] not in READABLE:
                raise ValueError(f"it has version {header['version']} of the format, this is version {VERSION}")
            return _model(header, arrays)
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no model of dasksvm: {error}") from error


def _model(header: dict[str, Any], arrays: Any) -> KernelModel:
    count, width = header["shape"]
    coefficients, intercepts, classes = (arrays[name] for name in ("coefficients", "intercepts", "classes"))
    if header["sparse"]:
        vectors = sp.csr_matrix(tuple(arrays[name] for name in ("data", "indices", "indptr")), shape=(count, width))
        vectors.check_format(full_check=True)
    else:
        vectors = arrays["support_vectors"]
    if vectors.shape != (count, width) or coefficients.shape != (len(intercepts), count):
        raise ValueError("its arrays do not fit each other")
    if header["kernel"]["name"] not in KERNELS:
        raise ValueError(f"it has the kernel {header['kernel']['name']!r}")
    if classes.ndim != 1 or any(a.dtype.kind not in "biuf" for a in (vectors, coefficients, intercepts)):
        raise ValueError("its arrays have types that no model has")
    scaling = Scaling(arrays["offset"], arrays["factor"]) if header["scaled"] else None
    if scaling is not None and not scaling.offset.shape == scaling.factor.shape == (width,):
        raise ValueError("its scaling does not fit its features")
    kernel, pairwise = Kernel(**header["kernel"]), bool(header.get("pairwise", False))
    problems = 1 if len(classes) == 2 else len(classes) * (len(classes) - 1) // 2 if pairwise else len(classes)
    if len(intercepts) != problems:
        raise ValueError("it has another number of decision functions than its classes make")
    return KernelModel(kernel, vectors, coefficients, intercepts, classes, scaling, pairwise)
