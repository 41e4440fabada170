"""Values of paper 4, and the medians of the rows of `pipelines.decomposition` next to them."""

import json
import statistics
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import click
from scipy.stats import ranksums

NAMES = {"mvp": "LIBSVM 2.71", "second-order": "LIBSVM 2.8", "hmg": "HMG", "mg": "maximum gain"}
# Tables 2 and 4, MNIST with 60,000 rows and a cache of 0.28 %: steps, seconds, dual; without shrinking steps and seconds.
TABLE2 = {
    "mvp": (185_162, 13_657, 143_199.142),
    "second-order": (110_441, 9_957, 143_199.146),
    "hmg": (152_873, 7_485, 143_199.160),
}
TABLE4 = {"mvp": (187_653, 94_981), "second-order": (110_470, 58_213), "hmg": (155_182, 41_097)}
# Table 5, connect-4: seconds by the share of the matrix (section 4.5) in percent.
TABLE5 = {
    "mvp": {0.56: 958, 1.12: 916, 2.8: 758, 5.6: 603},
    "second-order": {0.56: 766, 1.12: 734, 2.8: 649, 5.6: 547},
    "hmg": {0.56: 656, 1.12: 633, 2.8: 583, 5.6: 555},
}
# Tables 6 and 7: steps and dual where one row, two rows and the whole cache are searched.
TABLE67 = {
    "spam": {1: (14_023, 27_019.134), 2: (10_563, 27_019.140), 0: (7_280, 27_019.143)},
    "connect-4": {1: (83_305, 13_557.529), 2: (50_281, 13_557.536), 0: (51_285, 13_557.538)},
}
SEARCHED = {2: "two rows", 1: "one row", 0: "the cache"}
# Least number of orders for a rank-sum test.
ENOUGH = 5
FIGURES = ("iterations", "kernel_rows", "seconds", "dual", "delta")
Rows = list[dict[str, Any]]


def read(out: Path) -> Rows:
    """Read the rows of a file."""
    rows = map(json.loads, out.read_text().splitlines())
    return [row for row in rows if row["pipeline"] == "decomposition"]


def grouped(rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> dict[Any, Rows]:
    """Group rows by a key, in the order of their first rows."""
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def median(rows: Rows, figure: str) -> float:
    """Return the median of a figure."""
    return float(statistics.median(row[figure] for row in rows))


def told_rows(rows: Rows) -> None:
    """Print the medians of each study over the orders, next to the values of the paper."""
    telling = {"table": _table, "cache": _cache, "rows": _searched, "grid": _grid, "blocks": _blocks}
    kind = ("study", "task", "examples", "tol", "dtype", "shrinking")

    def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
        parameters = "" if row["study"] == "grid" else "C {C:g}, γ {gamma:.3g}".format(**row["parameters"])
        return *(row[name] for name in kind), parameters

    for (study, task, examples, tol, dtype, shrinking, parameters), group in grouped(rows, key_of).items():
        way = f"tol {tol:g}, {dtype}{'' if shrinking else ', no shrinking'}"
        shares = [f"{median(group, share):.1%}" for share in ("support_share", "bounded_share")]
        click.echo(f"\n{study} {task}, {examples} rows, {parameters}, {shares[0]} SVs, {shares[1]} at C, {way}")
        telling[study](group)


def label(row: dict[str, Any]) -> str:
    """Name a selection, and its stopping rule if it has its own."""
    return str(row["selection"]) + (", gain" if row.get("stop") == "gain" else "")


def medians(rows: Rows) -> str:
    """Format the medians of some rows as a line; requested kernel rows may be limited to the active examples."""
    steps, values, seconds, dual, delta = (median(rows, figure) for figure in FIGURES)
    ends = [row["converged"] for row in rows]
    missed = "" if rows[0]["missed"] is None else f" ({median(rows, 'missed'):.0f} asked for)"
    return (
        f"{steps:10.0f} steps {values:10.1f} rows{missed} {seconds:8.2f} s  dual {dual:16.6f}  δ {delta:8.6f}  "
        f"{len(rows)} orders{'' if all(ends) else f', {ends.count(False)} not at the end'}"
    )


def _table(rows: Rows) -> None:
    by_share = grouped(rows, lambda row: row["cache_share"])
    for share, some in by_share.items():
        found = grouped(some, label)
        for name, mine in found.items():
            click.echo(f"  {share:.2%} ({mine[0]['cache_rows']} rows) {name:12} {medians(mine)}")
            if mine[0]["task"] == "mnist-04" and mine[0]["selection"] in TABLE2:
                click.echo(f"{'':9}{_known(mine[0]['selection'], mine[0]['shrinking'])}")
        _ratios(found)
        _tested(found)


def _known(name: str, shrinking: bool) -> str:
    steps, seconds, *_ = TABLE2[name] if shrinking else TABLE4[name]
    base = (TABLE2 if shrinking else TABLE4)["second-order"]
    ratios = f"{steps / base[0]:.2f} / {seconds / base[1]:.2f} of LIBSVM 2.8's"
    return f"the paper's {NAMES[name]}, 60,000 rows: {steps} steps {seconds} s, {ratios}"


def _ratios(found: dict[str, Rows]) -> None:
    """Print the shares of the steps, rows and seconds of second-order selection."""
    base = found.get("second-order")
    for name, mine in found.items():
        if base is not None and mine is not base:
            shares = ", ".join(f"{figure} {median(mine, figure) / median(base, figure):.3f}" for figure in FIGURES[:3])
            click.echo(f"    {name} of second-order's: {shares}")


def _tested(found: dict[str, Rows]) -> None:
    """Print two-sided p-values of rank-sum tests between two selections."""
    for one, other in combinations(found, 2):
        mine, theirs = found[one], found[other]
        if min(len(mine), len(theirs)) >= ENOUGH:
            values = {name: ([row[name] for row in mine], [row[name] for row in theirs]) for name in FIGURES[:2]}
            shares = ", ".join(f"{name} p = {ranksums(*both).pvalue:.2g}" for name, both in values.items())
            click.echo(f"    {one} against {other}: {shares}")


def _cache(rows: Rows) -> None:
    for share, some in grouped(rows, lambda row: row["cache_share"]).items():
        for name, mine in grouped(some, label).items():
            click.echo(f"  {share:.2%} ({mine[0]['cache_rows']} rows) {name:12} {medians(mine)}")
    for name, by_share in TABLE5.items():
        told = ", ".join(f"{share} %: {seconds} s" for share, seconds in by_share.items())
        click.echo(f"    the paper's {NAMES[name]} on connect-4: {told}")


def _searched(rows: Rows) -> None:
    found = grouped(rows, lambda row: row["searched"])
    for searched, mine in found.items():
        saved = 1 - median(mine, "iterations") / median(found[2], "iterations") if 2 in found else 0.0
        click.echo(f"  {SEARCHED[searched]:10} {medians(mine)}, {saved:.0%} of the steps saved")
    _tested({SEARCHED[searched]: mine for searched, mine in found.items()})
    for task, known in TABLE67.items():
        saved_there = ", ".join(
            f"{SEARCHED[at]} {steps} steps, dual {dual} ({1 - steps / known[2][0]:.0%} saved)"
            for at, (steps, dual) in known.items()
        )
        click.echo(f"    the paper's {task}: {saved_there}")


def degenerate(row: dict[str, Any]) -> str:
    """Describe whether nearly all examples are support vectors, or nearly all of these are at C (figure 6), or neither."""
    if row["support_share"] >= 0.99:
        return "all"
    return "bounded" if row["bounded_share"] >= 0.99 * row["support_share"] else ""


def _grid(rows: Rows) -> None:
    for (C, gamma), some in grouped(rows, lambda row: (row["parameters"]["C"], row["parameters"]["gamma"])).items():
        found = grouped(some, label)
        of = some[0]
        told = "; ".join(
            f"{name} {median(mine, 'iterations'):.0f} steps {median(mine, 'kernel_rows'):.1f} rows"
            for name, mine in found.items()
        )
        shares = f"{of['support_share']:4.0%} SVs, {of['bounded_share']:4.0%} at C {degenerate(of):8}"
        click.echo(f"  C {C:9.3g} γ {gamma:9.3g} {shares} {told}")


def _blocks(rows: Rows) -> None:
    for (name, size), mine in grouped(rows, lambda row: (row["selection"], row["working_set_size"])).items():
        short = median(mine, "short")
        click.echo(f"  {name:12} {size:5} {medians(mine)}, {short:+.2e} below LIBSVM's")
