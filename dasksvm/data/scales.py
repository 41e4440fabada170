"""The maps of features that a data set can carry, by name: the one place that lists them."""

from typing import TYPE_CHECKING

from dasksvm.solver.registry import Registry

if TYPE_CHECKING:
    from dasksvm.data.statistics import Scale

SCALES: "Registry[Scale]" = Registry(
    "scale",
    {
        "none": "dasksvm.data.statistics:unscaled",
        "minmax": "dasksvm.data.statistics:onto_unit_range",
        "standard": "dasksvm.data.statistics:to_mean_and_deviation",
    },
)
