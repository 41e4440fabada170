"""Ask a person for labels in a terminal; each answer is written to disk at once, so that one can stop and continue later."""

import csv
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dasksvm.data.blocks import class_of
from dasksvm.data.chunked import is_sparse
from dasksvm.data.dataset import Dataset
from dasksvm.data.paths import local
from dasksvm.estimators.active.learner import ActiveLearner
from dasksvm.solver.kernels.features import Ints

HEADER = ["row", "label"]
SKIP, QUIT = "?", "q"
# Most values of a row that are shown.
SHOWN = 12


class Answers:
    """A CSV file of labelled rows, with the row numbers of the data set's source.

    Parameters
    ----------
    path : str
        Created with the first answer.
    data : Dataset
    """

    def __init__(self, path: str, data: Dataset) -> None:
        self.path = local(path)
        self.data = data
        if not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{path} cannot be written: its folder does not exist.")

    def read(self) -> tuple[Ints, list[Any]]:
        """Return the ids and labels so far; ValueError names the first invalid line."""
        if not self.path.exists():
            return np.zeros(0, np.int64), []
        with self.path.open(newline="") as file:
            lines = [(number, line) for number, line in enumerate(csv.reader(file), 1) if line]
        if not lines or lines[0][1] != HEADER:
            raise ValueError(
                f"{self.path} does not begin with {','.join(HEADER)}: it was not written by `dasksvm label`."
            )
        seen: set[int] = set()
        rows, labels = [], []
        for number, line in lines[1:]:
            if len(line) != 2 or not line[0].isdigit() or int(line[0]) in seen:
                raise ValueError(
                    f"{self.path}: line {number}: expected the number of a row that is not listed yet and its label. "
                    f"Got {','.join(line)!r} instead."
                )
            try:
                labels.append(class_of(line[1].encode()))
            except ValueError as error:
                raise ValueError(f"{self.path}: line {number}: {error}") from None
            seen.add(int(line[0]))
            rows.append(int(line[0]))
        ids = self.data.ids_of(np.array(rows, np.int64))
        if np.any(ids < 0):
            at = int(np.argmax(ids < 0))
            raise ValueError(f"{self.path}: line {lines[at + 1][0]}: {self.data.path} has no row {rows[at]}.")
        return ids, labels

    def add(self, row: int, label: Any) -> None:
        """Append an answer to the file and close it, so that nothing stays in a buffer."""
        new = not self.path.exists()
        torn = not new and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", newline="") as file:
            if torn:
                file.write("\n")
            table = csv.writer(file)
            if new:
                table.writerow(HEADER)
            table.writerow([row, label])


def ask_for_labels(learner: ActiveLearner, data: Dataset, answers: Answers) -> None:
    """Teach the answers so far, then ask for labels until the person quits or the pool is empty.

    Parameters
    ----------
    learner : ActiveLearner
        Its pool is `data`.
    data : Dataset
    answers : Answers
    """
    ids, known = answers.read()
    if known:
        try:
            learner.teach(ids, np.array(known))
        except ValueError as error:
            raise ValueError(f"{answers.path}: {error}") from None
        click.echo(f"{answers.path}: learned {_counts(learner)}")
    click.echo(f"enter a label, {SKIP} to skip a row, {QUIT} to quit")
    try:
        while len(query := learner.query(1)):
            row = int(data.source_rows(query)[0])
            click.echo(f"\nrow {row} of {data.origin}\n{_shown(data, query)}")
            label = _answer(learner)
            if label is None:
                break
            if label != SKIP:
                answers.add(row, label)
                learner.teach(query, [label])
    except (click.Abort, KeyboardInterrupt):
        click.echo()
    click.echo(f"{answers.path}: {_counts(learner)}")


def _answer(learner: ActiveLearner) -> Any:
    """Ask for one label; return SKIP to skip the row and None to quit."""
    while True:
        classes = np.unique(learner.labels).tolist()
        shown = "/".join(str(label) for label in classes)
        answer = click.prompt(f"[{len(learner.ids)}] label{f' ({shown})' if shown else ''}", type=str).strip()
        if answer in (SKIP, QUIT):
            return SKIP if answer == SKIP else None
        try:
            label = class_of(answer.encode())
        except ValueError as error:
            click.echo(str(error))
            continue
        label = str(label) if any(isinstance(known, str) for known in classes) else label
        if len(classes) < 2 or label in classes:
            return label
        click.echo(f"{answer!r} is not one of the two labels so far: {shown}")


def _counts(learner: ActiveLearner) -> str:
    labels, counts = np.unique(learner.labels, return_counts=True)
    text = ", ".join(f"{count} {label}" for label, count in zip(labels, counts, strict=True))
    return f"{len(learner.ids)} labels{f' ({text})' if text else ''}"


def _shown(data: Dataset, query: Ints) -> str:
    """Describe a row by its first values; a sparse row by its largest values."""
    row = data.rows(query)
    if is_sparse(row):
        largest = np.argsort(-np.abs(row.data), kind="stable")
        columns, values = row.indices[largest], row.data[largest]
    else:
        columns, values = np.arange(data.shape[1]), row[0]
    more = f", and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return "  " + ", ".join(_value(data, at, value) for at, value in _first_values(columns, values)) + more


def _first_values(columns: NDArray[Any], values: NDArray[Any]) -> list[tuple[int, Any]]:
    return list(zip(columns[:SHOWN].tolist(), values[:SHOWN].tolist(), strict=True))


def _value(data: Dataset, column: int, value: Any) -> str:
    name = data.names[column] if data.names else f"[{column}]"
    return f"{name} {value:g}"
