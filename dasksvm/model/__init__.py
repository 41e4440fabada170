"""What training leaves: `KernelModel`, its file formats, its predictions and how good they are.

A format is one module, which registers itself in `formats`. Nothing here knows how a model was trained.
"""

from dasksvm.model import libsvm, native, scikit_learn  # noqa: F401  they register themselves
from dasksvm.model.kernel_model import KernelModel

__all__ = ["KernelModel"]
