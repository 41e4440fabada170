"""The maps of features that a data set can carry, by name: the one place that lists them."""

from typing import TYPE_CHECKING

from dasksvm.solver.registry import Registry

if TYPE_CHECKING:
    from dasksvm.data.scale_maps import Scale

SCALES: "Registry[Scale]" = Registry(
    "scale",
    {
        "none": "dasksvm.data.scale_maps:none",
        "minmax": "dasksvm.data.scale_maps:minmax",
        "standard": "dasksvm.data.scale_maps:standard",
    },
)
