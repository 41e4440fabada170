"""Options, parameter types and checks that several commands share."""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# Exit codes in addition to those of click: a budget ended a training early, a command failed, a command was interrupted.
ENDED_EARLY, FAILED, INTERRUPTED = 3, 4, 130


class LocalPath(click.Path):  # type: ignore[type-arg, unused-ignore]
    """A local path; URLs are refused with a clear message, since click would report a path that does not exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check and return the path."""
        from dasksvm.data.paths import local  # `--help` must not load what data need

        try:
            value = str(local(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


as_json = click.option("--json", "as_json", is_flag=True, help="Print only one JSON object on standard output.")


def seed_option(text: str) -> Callable[[Command], Command]:
    """Make the option `--seed` with this help text."""
    return click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help=text)


def cluster_options(command: Command) -> Command:
    """Add the options that choose a cluster: `workers`, `scheduler` and `scheduler_file`, the parameters of `cluster_client`."""
    command = click.option(
        "--scheduler-file",
        type=LocalPath(exists=True, dir_okay=False),
        help="File with the address of a running cluster's scheduler.",
    )(command)
    command = click.option("--scheduler", metavar="ADDRESS", help="Address of a running cluster's scheduler.")(command)
    workers = "Worker processes to start on this machine; 0 or not given: this process does the work."
    return click.option("--workers", type=click.IntRange(0), help=workers)(command)


def snapshot_options(command: Command) -> Command:
    """Add the options for snapshots of a run: `checkpoint`, `every` and `resume`, the parameters of `snapshots`."""
    command = click.option("--resume", is_flag=True, help="Resume from the newest snapshot, if there is one.")(command)
    every = "Time between snapshots: 30s, 5 min or a number of seconds; if not given, 30s, or more if they are slow to write."
    command = click.option("--every", type=Seconds(), help=every)(command)
    checkpoint = "Folder for snapshots of the run; on a cluster it must be shared by the workers."
    return click.option("--checkpoint", type=LocalPath(file_okay=False), help=checkpoint)(command)


def snapshots(checkpoint: str | None, every: float | None, resume: bool) -> dict[str, Any]:
    """Return the arguments of `train` for snapshots of a run; none without a checkpoint."""
    from dasksvm.estimators.training import check_checkpoint

    try:
        check_checkpoint(checkpoint, every, resume)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return {} if checkpoint is None else {"checkpoint": checkpoint, "every": every, "resume": resume}


@contextmanager
def cluster_client(workers: int | None, scheduler: str | None, scheduler_file: str | None) -> Iterator[Any]:
    """Yield a client of the cluster that the options name, or None to work in this process."""
    if sum(option is not None for option in (workers, scheduler, scheduler_file)) > 1:
        raise click.UsageError("only one of --workers, --scheduler and --scheduler-file can be given.")
    from dasksvm import runtime

    with runtime.open_client(workers or 0, scheduler, scheduler_file) as client:
        if client is not None:
            click.echo(f"cluster {client.scheduler.address}, dashboard {client.dashboard_link}", err=True)
        yield client


class NumberOr(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number or one of several words.

    Parameters
    ----------
    kind : type
        int or float.
    words : str
        The words that are accepted instead of a number.
    """

    name = "number"

    def __init__(self, kind: type, *words: str) -> None:
        self.kind = kind
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Name the values that are accepted."""
        return "|".join(("NUMBER", *self.words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value."""
        if value in self.words:
            return value
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {' nor '.join(self.words)}.", param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A duration in Dask's notation, such as "30s" or "5 min", or a number of seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a duration to seconds."""
        from dask.utils import parse_timedelta

        try:
            # Dask accepts m and minutes, but not min.
            seconds = float(parse_timedelta(re.sub(r"mins?$", "m", value) if isinstance(value, str) else value))
        except (ValueError, KeyError, IndexError, OverflowError):
            self.fail(f"Invalid duration {value!r}: use 30s, 5 min or a number of seconds.", param, ctx)
        if not 0.0 < seconds < float("inf"):
            self.fail(f"Invalid duration {value!r}: it must be positive and finite.", param, ctx)
        return seconds


def data_set(path: str) -> Any:
    """Open a data set by its absolute path, so that workers started in other folders find it too."""
    from dasksvm import Dataset

    return Dataset.open(Path(path).absolute())


def check_folder(path: str) -> None:
    """Raise OSError if no file can be written to the folder of `path`, before a long computation starts."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: its folder does not exist.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
