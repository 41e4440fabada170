"""What training leaves: `KernelModel`, its file formats, its predictions and how good they are.

A format is one module, listed in `formats`. Nothing here knows how a model was trained.
"""

from dasksvm.model.kernel_model import KernelModel

__all__ = ["KernelModel"]
