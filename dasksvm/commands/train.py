"""`dasksvm train`."""

import signal
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from dasksvm.commands.shared import (
    ENDED_EARLY,
    LocalPath,
    as_json,
    check_folder,
    cluster_options,
    connected,
    data_set,
    snapshot_options,
    snapshots,
)
from dasksvm.commands.solvers import estimator_of, solver_options
from dasksvm.console import describe, echo_json, run_facts

TERMINATED = 128 + signal.SIGTERM
# Seconds after which a run that is asked to terminate does so, snapshot or not.
PATIENCE = 20.0


class Termination:
    """A callback that ends a run when this process is asked to terminate, as soon as a snapshot of it is written.

    Parameters
    ----------
    folder : str
        Of the snapshots.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._asked = False
        self._there: list[tuple[int, int]] | None = None

    def __enter__(self) -> "Termination":
        self._before = signal.signal(signal.SIGTERM, self._note), signal.signal(signal.SIGALRM, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGTERM, self._before[0])
        signal.signal(signal.SIGALRM, self._before[1])

    def _note(self, *_: object) -> None:
        self._asked = True
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def _end(self, *_: object) -> None:
        click.echo("dasksvm: terminated; --resume goes on", err=True)
        # Click's own Exit is a RuntimeError, and those tell a run on a cluster that its coordinator is lost.
        raise SystemExit(TERMINATED)

    def _snapshots(self) -> list[tuple[int, int]]:
        from dasksvm.snapshots import snapshots_in

        # The workers' folder may be out of sight here.
        return snapshots_in(self.folder) if self.folder.is_dir() else []

    def __call__(self, progress: Any, seconds: float) -> bool:
        """Stop the run, of which a snapshot is written then; end the command when that has been done."""
        if not self._asked:
            return False
        if self._there is None:
            self._there = self._snapshots()
            return True
        if self._snapshots() != self._there:
            self._end()
        return False


@click.command()
@click.argument("data", type=LocalPath(exists=True, file_okay=False))
@click.argument("model", type=LocalPath(dir_okay=False))
@solver_options
@snapshot_options
@cluster_options
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@as_json
def train(
    data: str,
    model: str,
    checkpoint: str | None,
    every: float | None,
    resume: bool,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train on the data set DATA and write MODEL, which is replaced.

    The exit code is 3 when a budget (--max-time, --max-examples, --max-support) ended the run before it was done; MODEL then is
    what it came to. With --checkpoint, SIGTERM ends the run after a last snapshot, without a model, and the exit code is 143.
    """
    from dasksvm import train as run_training

    keeping = snapshots(checkpoint, every, resume)
    found = data_set(data).needs_labels()
    check_folder(model)
    estimator = estimator_of(options, found.classes.tolist()).set_params(verbose=0 if quiet else 1)
    with connected(workers, scheduler, scheduler_file) as client, _termination(checkpoint) as ending:
        start = time.perf_counter()
        callbacks = [] if ending is None else [ending]
        run = run_training(found, estimator, client=client, callbacks=callbacks, **keeping)
        run.model.save(model)
        seconds = time.perf_counter() - start
        if as_json:
            about = {
                "solver": options["solver"],
                "data": data,
                "model": model,
                "seconds": seconds,
                "stopped": run.stopped,
            }
            echo_json(about | run_facts(run))
        else:
            describe(run.estimator, None, seconds)
            click.echo(run.timings.told())
            if run.stopped:
                click.echo("a budget ended the run early")
    if run.stopped:
        click.get_current_context().exit(ENDED_EARLY)


def _termination(checkpoint: str | None) -> AbstractContextManager[Termination | None]:
    return nullcontext() if checkpoint is None else Termination(checkpoint)
