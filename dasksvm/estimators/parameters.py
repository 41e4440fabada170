"""Checks of constructor parameters at fit, with scikit-learn's error messages."""

from collections.abc import Callable, Collection, Sequence
from inspect import signature
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np


class Rule(NamedTuple):
    """A condition on a parameter: its description for error messages, made when it is needed, and its test."""

    describe: Callable[[], str]
    holds: Callable[[Any], bool]


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def real(words: str, test: Callable[[float], bool]) -> Rule:
    """Make a rule for a finite number that passes `test`."""
    return Rule(
        lambda: f"a float in the range {words}",
        lambda v: _is_real(v) and -1e300 < float(v) < 1e300 and test(float(v)),
    )


def integer(words: str, test: Callable[[int], bool]) -> Rule:
    """Make a rule for an integer that passes `test`."""
    return Rule(
        lambda: f"an int in the range {words}", lambda v: isinstance(v, Integral) and _is_real(v) and test(int(v))
    )


def one_of(*options: str) -> Rule:
    """Make a rule for one of several strings."""
    return registered(options)


def registered(table: Collection[str]) -> Rule:
    """Make a rule for one of the names that are in a table when the rule is checked."""
    return Rule(lambda: f"a str among {set(table)}", lambda v: isinstance(v, str) and v in table)


def flag() -> Rule:
    """Make a rule for a bool."""
    return Rule(lambda: "an instance of 'bool'", lambda v: isinstance(v, bool))


def either(*rules: Rule) -> Rule:
    """Make a rule that is satisfied if one of several rules is."""
    return Rule(lambda: " or ".join(rule.describe() for rule in rules), lambda v: any(rule.holds(v) for rule in rules))


NONE = Rule(lambda: "None", lambda v: v is None)


def check_parameters(estimator: Any, rules: dict[str, Rule]) -> None:
    """Raise ValueError for the first parameter that breaks its rule."""
    for name, rule in rules.items():
        value = getattr(estimator, name)
        if not rule.holds(value):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {rule.describe()}. Got {value!r} instead."
            )


def changed_parameters(estimator: Any, names: Sequence[str]) -> list[str]:
    """Return which parameters are not at their defaults."""
    defaults = signature(type(estimator).__init__).parameters
    return [name for name in names if getattr(estimator, name) != defaults[name].default]


def check_unused(estimator: Any, names: Sequence[str], setting: str) -> None:
    """Raise ValueError for the first parameter that has no effect with a setting but is not at its default."""
    for name in changed_parameters(estimator, names):
        default = signature(type(estimator).__init__).parameters[name].default
        raise ValueError(
            f"The {name!r} parameter of {type(estimator).__name__} has no effect with {setting}: leave it at its default, "
            f"{default!r}. Got {getattr(estimator, name)!r} instead."
        )
