"""The kernel functions by name: the one place that lists them. To add one, write its module and add a line here."""

from typing import TYPE_CHECKING

from dasksvm.solver.registry import Registry

if TYPE_CHECKING:
    from dasksvm.solver.kernels.formula import Formula

KERNELS: "Registry[Formula]" = Registry(
    "kernel",
    {
        "linear": "dasksvm.solver.kernels.linear:LINEAR",
        "poly": "dasksvm.solver.kernels.poly:POLY",
        "rbf": "dasksvm.solver.kernels.rbf:RBF",
        "sigmoid": "dasksvm.solver.kernels.sigmoid:SIGMOID",
        "laplacian": "dasksvm.solver.kernels.laplacian:LAPLACIAN",
    },
)
