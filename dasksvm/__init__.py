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
    "ActiveLearner": "dasksvm.estimators.active.learner",
    "Certificate": "dasksvm.estimators.certificate",
    "Dataset": "dasksvm.data.dataset",
    "GapSVC": "dasksvm.estimators.gapsvc",
    "HeldOut": "dasksvm.training.callbacks",
    "Job": "dasksvm.runtime",
    "KernelModel": "dasksvm.model.kernel_model",
    "LaSVC": "dasksvm.estimators",
    "MulticlassSVC": "dasksvm.estimators.multiclasssvc",
    "Run": "dasksvm.estimators.training",
    "SMOSVC": "dasksvm.estimators.smosvc",
    "ScaleWarning": "dasksvm.data.statistics",
    "ShiftingGridSearch": "dasksvm.estimators.search.grid",
    "TrackingSVC": "dasksvm.estimators.trackingsvc",
    "jaakkola_gamma": "dasksvm.estimators.search.gamma",
    "jobs": "dasksvm.runtime.jobs.job",
    "load": "dasksvm.model.native",
    "submit": "dasksvm.estimators.submission",
    "train": "dasksvm.estimators.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dasksvm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
