"""What the commands share: where the work is done, values with units, output for programs."""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# Exit codes, beside those of click: a budget ended a training early; it failed; it was interrupted.
ENDED_EARLY, FAILED, INTERRUPTED = 3, 4, 130


class LocalPath(click.Path):  # type: ignore[type-arg, unused-ignore]
    """A path as click checks it, and no URL, which click would take for a path that does not exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a value."""
        from dasksvm.data.paths import local  # `--help` must not load what data need

        try:
            value = str(local(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else.")


def seed_option(told: str) -> Callable[[Command], Command]:
    """Make the option `--seed`, which decides what is told."""
    return click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help=told)


def cluster_options(command: Command) -> Command:
    """Add the options that say where the work is done: `workers`, `scheduler`, `scheduler_file`, as `connected` takes them."""
    command = click.option(
        "--scheduler-file", type=LocalPath(exists=True, dir_okay=False), help="Of a running cluster."
    )(command)
    command = click.option("--scheduler", metavar="ADDRESS", help="Of a running cluster.")(command)
    return click.option("--workers", type=click.IntRange(0), help="Processes to start on this machine; 0: none.")(
        command
    )


def snapshot_options(command: Command) -> Command:
    """Add the options that say where snapshots of a run go: `checkpoint`, `every`, `resume`, as `snapshots` takes them."""
    command = click.option("--resume", is_flag=True, help="Go on from the newest snapshot, if there is one.")(command)
    often = "Time from one snapshot to the next: 30s, 5 min, seconds; if not given, 30s, or more where they take long."
    command = click.option("--every", type=Seconds(), help=often)(command)
    told = "Folder for snapshots of the run; on a cluster one that its workers share."
    return click.option("--checkpoint", type=LocalPath(file_okay=False), help=told)(command)


def snapshots(checkpoint: str | None, every: float | None, resume: bool) -> dict[str, Any]:
    """Give what `train` takes for snapshots of a run, nothing where there are none."""
    from dasksvm.estimators.training import check_checkpoint

    try:
        check_checkpoint(checkpoint, every, resume)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return {} if checkpoint is None else {"checkpoint": checkpoint, "every": every, "resume": resume}


@contextmanager
def connected(workers: int | None, scheduler: str | None, scheduler_file: str | None) -> Iterator[Any]:
    """Give a client of the cluster that the options name, or None for this process."""
    if sum(option is not None for option in (workers, scheduler, scheduler_file)) > 1:
        raise click.UsageError("--workers, --scheduler and --scheduler-file exclude each other.")
    from dasksvm import runtime

    with runtime.opened(workers or 0, scheduler, scheduler_file) as client:
        if client is not None:
            click.echo(f"cluster {client.scheduler.address}, dashboard {client.dashboard_link}", err=True)
        yield client


class NumberOr(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number, or one of some words.

    Parameters
    ----------
    kind : type
        int or float.
    words : str
    """

    name = "number"

    def __init__(self, kind: type, *words: str) -> None:
        self.kind = kind
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Name what may stand here."""
        return "|".join(("NUMBER", *self.words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a value."""
        if value in self.words:
            return value
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {' nor '.join(self.words)}.", param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time as Dask writes it: "30s", "5 min", or plain seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a time."""
        from dask.utils import parse_timedelta

        try:
            # Dask knows m and minutes.
            seconds = float(parse_timedelta(re.sub(r"mins?$", "m", value) if isinstance(value, str) else value))
        except (ValueError, KeyError, IndexError, OverflowError):
            self.fail(f"{value!r} is no time, as 30s, 5 min or plain seconds are.", param, ctx)
        if not 0.0 < seconds < float("inf"):
            self.fail(f"{value!r} is no time above 0.", param, ctx)
        return seconds


def data_set(path: str) -> Any:
    """Open a data set by a path that workers in other folders find too."""
    from dasksvm import Dataset

    return Dataset.open(Path(path).absolute())


def check_folder(path: str) -> None:
    """Raise OSError where no file can be written to the folder of one that will be."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: its folder does not exist.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
