"""Command-line options for the solver and its parameters, with LIBSVM's letters as short forms, and the estimator they make."""

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
        """Convert a value."""
        if isinstance(value, str) and value.isdigit():
            # Only numbers need the kernels themselves, which are slow to load.
            numbers = {str(formula.libsvm.number): name for name, formula in KERNELS.items() if formula.libsvm}
            value = numbers.get(value, value)
        return super().convert(value, param, ctx)


# The options, by the name of the estimator's parameter. They have no default values: an option that is not given is left to the
# estimator, and not every solver has every parameter.
OPTIONS = {
    "C": click.option("-c", "--c", "C", type=float, help="Penalty of errors: bound of the coefficients.  [default: 1]"),
    "kernel": click.option(
        "-t", "--kernel", type=KernelName(), help="Kernel, by name or by LIBSVM's number.  [default: rbf]"
    ),
    "gamma": click.option(
        "-g",
        "--gamma",
        type=NumberOr(float, "scale", "auto"),
        help="γ of the kernel.  [default: scale]",
    ),
    "degree": click.option("-d", "--degree", type=int, help="Degree of the kernel, if it has one.  [default: 3]"),
    "coef0": click.option("-r", "--coef0", type=float, help="Constant of the kernel, if it has one.  [default: 0]"),
    "tol": click.option(
        "-e", "--tol", type=float, help="Ignore violations of the optimality conditions below this.  [default: 0.001]"
    ),
    "epochs": click.option(
        "--epochs",
        type=NumberOr(int, "auto", "converged"),
        help="Passes over the data; 'converged' trains to the optimum.  [default: auto, which is 1 in single steps and 1 or 2 "
        "in blocks]",
    ),
    "engine": click.option(
        "--engine",
        type=click.Choice(["auto", "single", "blocks"]),
        help="How LaSVC trains: in single steps or in blocks.  [default: auto, blocks for more than 5000 examples]",
    ),
    "selection": click.option(
        "--selection", type=click.Choice(list(CRITERIA)), help="How the next example is chosen.  [default: random]"
    ),
    "candidates": click.option(
        "--candidates", type=int, help="Random examples from which the next one is chosen.  [default: 50]"
    ),
    "max_examples": click.option(
        "--max-examples", type=int, help="Stop after this many examples and keep the model so far."
    ),
    "max_support": click.option("--max-support", type=int, help="Stop at this many support vectors."),
    "max_time": click.option(
        "--max-time", type=Seconds(), help="Stop after this time: 30s, 5 min or a number of seconds."
    ),
    "decision_function_shape": click.option(
        "--decision-function-shape",
        type=click.Choice(["ovr", "ovo"]),
        help="For more than two classes: each class against the rest (ovr) or pairs of classes (ovo).  [default: ovr]",
    ),
    "cache_size": click.option(
        "-m",
        "--cache-size",
        type=NumberOr(float, "auto"),
        help="Memory for kernel values, in megabytes.  [default: 1000, or a third of the memory where training in blocks]",
    ),
    "dtype": click.option(
        "--dtype", type=click.Choice(["float32", "float64"]), help="Precision of kernel values.  [default: float32]"
    ),
}
# Parameters that are set by other options or by the command itself.
GIVEN = ("class_weight", "random_state", "verbose", "client")


def solver_options(command: Command) -> Command:
    """Add the options from which `estimator_of` makes an estimator; the command receives them as **options."""
    more = (
        click.option(
            "-w",
            "--weight",
            "weights",
            type=(str, click.FloatRange(0)),
            multiple=True,
            metavar="LABEL WEIGHT",
            help="Multiply C by WEIGHT for the class LABEL; can be repeated.",
        ),
        click.option(
            "--class-weight", type=click.Choice(["balanced"]), help="Weight the classes inversely to their frequency."
        ),
        seed_option("Seed for the random order of the examples."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set a parameter that has no option; VALUE is read as JSON, otherwise as text. Can be repeated.",
        ),
    )
    for option in reversed((*OPTIONS.values(), *more)):
        command = option(command)
    return click.option(
        "--solver", type=click.Choice(list(SOLVERS)), default="lasvc", show_default=True, help="Estimator to train."
    )(command)


def estimator_of(options: dict[str, Any], classes: Sequence[Any]) -> Any:
    """Make an estimator from the values of `solver_options`; raise UsageError for values that it does not accept.

    Parameters
    ----------
    options : dict
    classes : sequence
        The classes of the data set, to which the class weights refer.
    """
    import dasksvm
    from dasksvm.estimators.parameters import check_parameters

    kind = getattr(dasksvm, SOLVERS[options["solver"]])
    known = kind().get_params()
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise click.UsageError(f"{kind.__name__} has no {flag_of(unknown[0])}.")
    own = sorted(set(known) - set(OPTIONS) - set(GIVEN))
    given |= _settings(options["settings"], own, kind.__name__)
    weight = options["class_weight"]
    if options["weights"]:
        if weight is not None:
            raise click.UsageError("-w and --class-weight cannot be used together.")
        weight = _weights(options["weights"], classes)
    estimator = kind(**given, class_weight=weight, random_state=options["seed"])
    try:
        check_parameters(estimator, kind._parameter_rules)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return estimator


def flag_of(name: str) -> str:
    """Return the name of the option for a parameter."""
    return f"--{name.lower().replace('_', '-')}"


def _settings(texts: Sequence[str], own: Sequence[str], solver: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes NAME=VALUE. Got {text!r} instead.")
        if name in OPTIONS or name in GIVEN:
            raise click.UsageError(f"--set {name}: this parameter has its own option or is set by the command.")
        if name not in own:
            raise click.UsageError(f"--set {name}: unknown parameter; {solver} has {', '.join(own)}.")
        if name in found:
            raise click.UsageError(f"--set {name}: given twice.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _weights(weights: Sequence[tuple[str, float]], classes: Sequence[Any]) -> dict[Any, float]:
    """Find the class for each label on the command line, by its text or by its numeric value."""
    found: dict[Any, float] = {}
    for text, weight in weights:
        meant = [label for label in classes if str(label) == text or _equal(label, text)]
        if not meant:
            names = ", ".join(str(label) for label in classes)
            raise click.UsageError(f"-w {text}: unknown class; the classes are {names}.")
        if meant[0] in found:
            raise click.UsageError(f"-w {text}: this class already has a weight.")
        if not math.isfinite(weight):
            raise click.UsageError(f"-w {text}: the weight {weight} is not finite.")
        found[meant[0]] = weight
    return found


def _equal(label: Any, text: str) -> bool:
    try:
        return not isinstance(label, str) and bool(label == float(text))
    except ValueError:
        return False
