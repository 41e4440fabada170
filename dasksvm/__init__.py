"""Kernel support vector machines for data larger than one machine's memory."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
__all__ = [
    "SMOSVC",
    "ActiveLearner",
    "Certificate",
    "Dataset",
    "GapSVC",
    "HeldOut",
    "Job",
    "KernelModel",
    "LaSVC",
    "MulticlassSVC",
    "Run",
    "ScaleWarning",
    "ShiftingGridSearch",
    "TrackingSVC",
    "__version__",
    "jaakkola_gamma",
    "jobs",
    "load",
    "submit",
    "train",
]

_HOMES = {
    "ActiveLearner": "dasksvm.estimators.active",
    "Certificate": "dasksvm.estimators.certificate",
    "Dataset": "dasksvm.data",
    "GapSVC": "dasksvm.estimators.gap",
    "HeldOut": "dasksvm.callbacks",
    "Job": "dasksvm.runtime",
    "KernelModel": "dasksvm.model",
    "LaSVC": "dasksvm.estimators",
    "MulticlassSVC": "dasksvm.estimators.multiclass",
    "Run": "dasksvm.estimators.training",
    "SMOSVC": "dasksvm.estimators.smo",
    "ScaleWarning": "dasksvm.data.statistics",
    "ShiftingGridSearch": "dasksvm.estimators.search",
    "TrackingSVC": "dasksvm.estimators.tracking",
    "jaakkola_gamma": "dasksvm.estimators.width",
    "jobs": "dasksvm.runtime",
    "load": "dasksvm.modelfile",
    "submit": "dasksvm.estimators.jobs",
    "train": "dasksvm.estimators.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dasksvm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
