"""The command line: the group of commands, error messages and exit codes.

Exit codes: 0 success, 2 usage error, 3 a budget ended the training early, 4 failure, 130 interrupted, 143 terminated. With
--checkpoint, a training writes a last snapshot before it exits with 130 or 143.
"""

import select
import sys
import traceback
import warnings
from concurrent.futures import CancelledError
from typing import Any

import click

from dasksvm import __version__
from dasksvm.cli.info import info
from dasksvm.cli.ingest import ingest
from dasksvm.cli.jobs import attach, cancel, fetch, status, submit
from dasksvm.cli.label import label
from dasksvm.cli.options import FAILED, INTERRUPTED
from dasksvm.cli.output import echo_warning, in_one_line
from dasksvm.cli.predict import evaluate, predict
from dasksvm.cli.quickstart import quickstart
from dasksvm.cli.train import train

# Errors that bad input, a full disk or a lost cluster can cause; any other error is a bug.
EXPECTED = (ValueError, OSError, RuntimeError, ImportError, MemoryError, CancelledError)
VERBOSE = "dasksvm.verbose"


def _note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[VERBOSE] = True


def verbosity() -> click.Option:
    """Make the option -v, which is allowed before and after the command."""
    text = "Show the traceback of an error."
    return click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_note, help=text)


class OneLine(click.Group):
    """Command group that prints each error and warning as one line on standard error."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command and give it the option -v."""
        cmd.params.append(verbosity())
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, print its errors and set the exit code."""
        with warnings.catch_warnings():
            warnings.showwarning = echo_warning  # type: ignore[assignment]
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit):
                raise
            except (KeyboardInterrupt, click.Abort):
                click.echo("dasksvm: interrupted", err=True)
                ctx.exit(INTERRUPTED)
            except Exception as error:
                if isinstance(error, BrokenPipeError) and _output_is_closed():
                    raise
                if VERBOSE in ctx.meta:
                    traceback.print_exc()
                click.echo(f"dasksvm: {_message_of(error)}", err=True)
                ctx.exit(FAILED)


def _output_is_closed() -> bool:
    """Return whether standard output or standard error has lost its reader; click then exits without a message."""
    readers = select.poll()
    for stream in (sys.stdout, sys.stderr):
        readers.register(stream, 0)
    return any(event & select.POLLERR for _, event in readers.poll(0))


def _message_of(error: Exception) -> str:
    """Return the message for an error."""
    name, text = type(error).__name__, in_one_line(str(error))
    if isinstance(error, MemoryError):
        return f"out of memory: {text}" if text else "out of memory"
    if isinstance(error, EXPECTED):
        return text or name
    if type(error).__module__.partition(".")[0] in ("dask", "distributed"):
        return f"{name}: {text}"
    return f"{name}: {text} (this is a bug in dasksvm; -v shows the traceback)"


@click.group("svm", cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dasksvm")
def main() -> None:
    """Kernel support vector machines for data larger than one machine's memory."""


main.params.append(verbosity())
for command in (
    *(quickstart, ingest, info, train, predict, evaluate, label),
    *(submit, status, attach, cancel, fetch),
):
    main.add_command(command)

if __name__ == "__main__":
    sys.exit(main())
