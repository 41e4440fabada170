"""`dasksvm label`."""

from typing import Any

import click

from dasksvm.cli.options import LocalPath, NumberOr, check_folder, seed_option
from dasksvm.cli.solver_options import KernelName


@click.command()
@click.argument("pool", type=LocalPath(exists=True, file_okay=False))
@click.argument("labels", type=LocalPath(dir_okay=False))
@click.option("--model", type=LocalPath(dir_okay=False), help="Write the model here at the end.")
@click.option("-c", "--c", "C", default=1.0, show_default=True, help="Penalty of errors: bound of the coefficients.")
@click.option("-t", "--kernel", type=KernelName(), default="rbf", show_default=True, help="Kernel.")
@click.option(
    "-g",
    "--gamma",
    type=NumberOr(float, "scale", "auto"),
    default="scale",
    show_default=True,
    help="γ of the kernel.",
)
@click.option(
    "--candidates",
    type=NumberOr(int, "all"),
    default=50,
    show_default=True,
    help="Rows from which each question is chosen.",
)
@click.option(
    "--first",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Labels of each class to collect before the model chooses the rows.",
)
@seed_option("Seed for the choice of random rows.")
def label(
    pool: str, labels: str, model: str | None, candidates: int | str, first: int, seed: int, **parameters: Any
) -> None:
    """Ask for the labels of the most useful rows of POOL.

    The answers are stored in the CSV file LABELS. Those that are already there are learned first, so you can stop and continue
    at any time. Labels stored in POOL are not read.
    """
    from dasksvm import ActiveLearner, Dataset, LaSVC
    from dasksvm.estimators.active.labelling import Answers, ask_for_labels

    data = Dataset.open(pool)
    if model is not None:
        check_folder(model)
    learner = ActiveLearner(LaSVC(random_state=seed, **parameters), data, candidates=candidates, first=first)
    ask_for_labels(learner, data, Answers(labels, data))
    if model is None:
        return
    if learner.started:
        learner.model_.save(model)
        click.echo(f"wrote {model}: {learner.model_.support_vectors.shape[0]} support vectors")
    else:
        click.echo(f"no model yet: {first} labels of each of two classes are needed")
