"""The selection criteria by name: the one place that lists them. To add one, write a `Criterion` and add a line here."""

from typing import TYPE_CHECKING

from dasksvm.solver.registry import Registry

if TYPE_CHECKING:
    from dasksvm.solver.engine.criterion import Criterion

RANDOM = "random"
CRITERIA: "Registry[Criterion]" = Registry(
    "selection criterion",
    {
        RANDOM: "dasksvm.solver.engine.criterion:RANDOM_ORDER",
        "gradient": "dasksvm.solver.engine.criterion:GRADIENT",
        "active": "dasksvm.solver.engine.criterion:ACTIVE",
        "autoactive": "dasksvm.solver.engine.criterion:AUTOACTIVE",
    },
)
