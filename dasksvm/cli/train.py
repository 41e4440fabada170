"""`dasksvm train`."""

import os
import shlex
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from dasksvm.cli.options import (
    ENDED_EARLY,
    INTERRUPTED,
    LocalPath,
    as_json,
    check_folder,
    cluster_client,
    cluster_options,
    data_set,
    snapshot_options,
    snapshots,
)
from dasksvm.cli.output import CLEAR, describe, echo_json, run_facts
from dasksvm.cli.solver_options import estimator_of, solver_options

TERMINATED = 128 + signal.SIGTERM
# Seconds after SIGTERM at which the command exits even if the last snapshot is not written yet.
SNAPSHOT_TIMEOUT = 20.0
ARGUMENTS = "dasksvm.arguments"


class Repeatable(click.Command):
    """A command that remembers its arguments, so that it can print the command that resumes it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments as they were given."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


def resume_command(ctx: click.Context) -> str:
    """Return the command line that resumes this run."""
    given = ctx.meta[ARGUMENTS]
    return shlex.join([*ctx.command_path.split(), *given, *([] if "--resume" in given else ["--resume"])])


class StopOnSignal:
    """A callback that ends the run after SIGTERM or Ctrl-C, as soon as a last snapshot is written.

    A second Ctrl-C ends this process at once.

    Parameters
    ----------
    folder : str
        Folder of the snapshots.
    command : str
        Command line that resumes the run.
    """

    def __init__(self, folder: str, command: str) -> None:
        self.folder = Path(folder)
        self.command = command
        self._code: int | None = None
        self._earlier_snapshots: list[tuple[int, int]] | None = None

    def __enter__(self) -> "StopOnSignal":
        handlers = {signal.SIGTERM: self._terminated, signal.SIGALRM: self._timed_out, signal.SIGINT: self._interrupted}
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A script has started this process in the background: Ctrl-C is meant for other processes.
            del handlers[signal.SIGINT]
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _terminated(self, *_: object) -> None:
        self._code = TERMINATED
        signal.setitimer(signal.ITIMER_REAL, SNAPSHOT_TIMEOUT)

    def _interrupted(self, *_: object) -> None:
        self._code = INTERRUPTED
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Not through `sys.stderr`, which raises an error if the signal arrives while something is being written to it.
        with suppress(OSError):
            os.write(2, b"\ndasksvm: interrupted: writing a last snapshot; press Ctrl-C again to end at once\n")

    def _timed_out(self, *_: object) -> None:
        self._end(False)

    def _end(self, written: bool) -> NoReturn:
        cause = "terminated" if self._code == TERMINATED else "interrupted"
        result = "a last snapshot was written" if written else f"no last snapshot was found in {self.folder}"
        self._print(f"{cause}: {result}. To resume: {self.command}")
        # Click's own Exit is a RuntimeError, which a run on a cluster would take for a lost coordinator.
        raise SystemExit(self._code)

    def _print(self, text: str) -> None:
        clear = CLEAR if sys.stderr.isatty() else ""
        click.echo(f"{clear}dasksvm: {text}", err=True)

    def _snapshots(self) -> list[tuple[int, int]]:
        from dasksvm.training.snapshots import snapshots_in

        # The folder may be visible to the workers only.
        return snapshots_in(self.folder) if self.folder.is_dir() else []

    def __call__(self, progress: Any, seconds: float) -> bool:
        """Stop the run after a signal, which makes it write a snapshot; exit once that snapshot is there."""
        if self._code is None:
            return False
        if self._earlier_snapshots is None:
            self._earlier_snapshots = self._snapshots()
            return True
        if self._snapshots() != self._earlier_snapshots:
            self._end(True)
        return False

    def conclude(self, stopped: bool) -> None:
        """Exit if a signal stopped the run and its last snapshot has not been found."""
        if stopped and self._code is not None:
            self._end(False)


@click.command(cls=Repeatable)
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
    """Train on the data set DATA and write the model to MODEL.

    If MODEL exists, it is replaced. If a budget (--max-time, --max-examples, --max-support) ends the run early, MODEL is the
    model so far and the exit code is 3. With --checkpoint, Ctrl-C and SIGTERM end the run after a last snapshot, without a
    model; the command that resumes the run is printed, and the exit code is 130 or 143. A second Ctrl-C ends the run at once.
    """
    from dasksvm import train as run_training

    snapshot_arguments = snapshots(checkpoint, every, resume)
    found = data_set(data).needs_labels()
    check_folder(model)
    estimator = estimator_of(options, found.classes.tolist()).set_params(verbose=0 if quiet else 1)
    with cluster_client(workers, scheduler, scheduler_file) as client, _stop_on_signal(checkpoint) as stop_on_signal:
        start = time.perf_counter()
        callbacks = [] if stop_on_signal is None else [stop_on_signal]
        run = run_training(found, estimator, client=client, callbacks=callbacks, **snapshot_arguments)
        if stop_on_signal is not None:
            stop_on_signal.conclude(run.stopped)
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
            click.echo(run.timings.summary())
            if run.stopped:
                click.echo("a budget ended the run early")
    if run.stopped:
        click.get_current_context().exit(ENDED_EARLY)


def _stop_on_signal(checkpoint: str | None) -> AbstractContextManager[StopOnSignal | None]:
    if checkpoint is None:
        return nullcontext()
    return StopOnSignal(checkpoint, resume_command(click.get_current_context()))
