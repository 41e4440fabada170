"""Options that become an estimator: the solver, its parameters by name, LIBSVM's letters for them."""

import json
import math
from collections.abc import Sequence
from typing import Any

import click

from dasksvm.cli.options import Command, NumberOr, Seconds, seed_option
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.kernels.registry import KERNELS

SOLVERS = {
    "lasvc": "LaSVC",
    "gapsvc": "GapSVC",
    "trackingsvc": "TrackingSVC",
    "smosvc": "SMOSVC",
    "multiclasssvc": "MulticlassSVC",
}


class KernelName(click.Choice):  # type: ignore[type-arg, unused-ignore]
    """A kernel, by name or by LIBSVM's number."""

    def __init__(self) -> None:
        super().__init__(list(KERNELS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a value."""
        if isinstance(value, str) and value.isdigit():
            # Only numbers need the kernels themselves, which are slow to load.
            numbers = {str(formula.libsvm.number): name for name, formula in KERNELS.items() if formula.libsvm}
            value = numbers.get(value, value)
        return super().convert(value, param, ctx)


# By the estimators' parameter. None has a default: what is not given is the estimator's, and not every solver has all.
OPTIONS = {
    "C": click.option("-c", "--c", "C", type=float, help="Bound of the coefficients.  [default: 1]"),
    "kernel": click.option("-t", "--kernel", type=KernelName(), help="Also 0 to 3, as LIBSVM.  [default: rbf]"),
    "gamma": click.option("-g", "--gamma", type=NumberOr(float, "scale", "auto"), help="[default: scale]"),
    "degree": click.option("-d", "--degree", type=int, help="Of the kernel poly.  [default: 3]"),
    "coef0": click.option("-r", "--coef0", type=float, help="Constant of poly and sigmoid.  [default: 0]"),
    "tol": click.option("-e", "--tol", type=float, help="Violations below this are left alone.  [default: 0.001]"),
    "epochs": click.option("--epochs", type=NumberOr(int, "converged"), help="Passes over the data.  [default: 1]"),
    "selection": click.option(
        "--selection", type=click.Choice(list(CRITERIA)), help="Which example is next.  [default: random]"
    ),
    "candidates": click.option("--candidates", type=int, help="Examples one is chosen from.  [default: 50]"),
    "max_examples": click.option("--max-examples", type=int, help="Examples after which to end with what there is."),
    "max_support": click.option("--max-support", type=int, help="Support vectors at which to end so."),
    "max_time": click.option("--max-time", type=Seconds(), help="Time after which to end so: 30s, 5 min, seconds."),
    "decision_function_shape": click.option(
        "--decision-function-shape",
        type=click.Choice(["ovr", "ovo"]),
        help="Of more than two classes: each against the rest, or pairs.  [default: ovr]",
    ),
    "cache_size": click.option("-m", "--cache-size", type=float, help="Megabytes for kernel rows.  [default: 1000]"),
    "dtype": click.option(
        "--dtype", type=click.Choice(["float32", "float64"]), help="Of kernel values.  [default: float32]"
    ),
}
# Parameters that other options give, or the command itself.
GIVEN = ("class_weight", "random_state", "verbose", "client")


def solver_options(command: Command) -> Command:
    """Add the options that `estimator_of` makes an estimator of; a command takes them as **options."""
    more = (
        click.option(
            "-w",
            "--weight",
            "weights",
            type=(str, click.FloatRange(0)),
            multiple=True,
            metavar="LABEL WEIGHT",
            help="Multiplies C for a class.",
        ),
        click.option("--class-weight", type=click.Choice(["balanced"]), help="Weights that make classes equal."),
        seed_option("Decides the order of the examples."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="What this solver alone has; VALUE as JSON, else text.",
        ),
    )
    for option in reversed((*OPTIONS.values(), *more)):
        command = option(command)
    return click.option(
        "--solver", type=click.Choice(list(SOLVERS)), default="lasvc", show_default=True, help="The estimator."
    )(command)


def estimator_of(options: dict[str, Any], classes: Sequence[Any]) -> Any:
    """Make an estimator of what `solver_options` gave; UsageError says what does not fit.

    Parameters
    ----------
    options : dict
    classes : sequence
        Those of the data set, which class weights are for.
    """
    import dasksvm
    from dasksvm.estimators.parameters import check_parameters

    kind = getattr(dasksvm, SOLVERS[options["solver"]])
    known = kind().get_params()
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    strange = [name for name in given if name not in known]
    if strange:
        raise click.UsageError(f"{kind.__name__} has no {flag_of(strange[0])}.")
    own = sorted(set(known) - set(OPTIONS) - set(GIVEN))
    given |= _settings(options["settings"], own, kind.__name__)
    weight = options["class_weight"]
    if options["weights"]:
        if weight is not None:
            raise click.UsageError("-w and --class-weight exclude each other.")
        weight = _weights(options["weights"], classes)
    estimator = kind(**given, class_weight=weight, random_state=options["seed"])
    try:
        check_parameters(estimator, kind._parameter_rules)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return estimator


def flag_of(name: str) -> str:
    """Name the option of a parameter."""
    return f"--{name.lower().replace('_', '-')}"


def _settings(texts: Sequence[str], own: Sequence[str], solver: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes NAME=VALUE. Got {text!r} instead.")
        if name in OPTIONS or name in GIVEN:
            raise click.UsageError(f"--set {name}: it has an option of its own.")
        if name not in own:
            raise click.UsageError(f"--set {name}: {solver} has {', '.join(own)}.")
        if name in found:
            raise click.UsageError(f"--set {name}: it is given twice.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _weights(weights: Sequence[tuple[str, float]], classes: Sequence[Any]) -> dict[Any, float]:
    """Find the classes that labels on the command line mean: by how they are written, or by value."""
    found: dict[Any, float] = {}
    for text, weight in weights:
        meant = [label for label in classes if str(label) == text or _equal(label, text)]
        if not meant:
            raise click.UsageError(f"-w {text}: the classes are {', '.join(str(label) for label in classes)}.")
        if meant[0] in found:
            raise click.UsageError(f"-w {text}: the class has a weight already.")
        if not math.isfinite(weight):
            raise click.UsageError(f"-w {text}: the weight {weight} is not finite.")
        found[meant[0]] = weight
    return found


def _equal(label: Any, text: str) -> bool:
    try:
        return not isinstance(label, str) and bool(label == float(text))
    except ValueError:
        return False
