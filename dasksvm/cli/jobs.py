"""`dasksvm submit`, `status`, `attach`, `cancel` and `fetch`: trainings that continue after the command that started them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from threading import Timer
from typing import Any

import click

from dasksvm.cli.options import (
    ENDED_EARLY,
    FAILED,
    Command,
    LocalPath,
    as_json,
    check_folder,
    data_set,
    snapshot_options,
    snapshots,
)
from dasksvm.cli.output import echo_json, print_job
from dasksvm.cli.solver_options import estimator_of, solver_options

# Seconds after which a command prints that it is waiting for the scheduler.
NOTICE = 2.0
EXITS = {"done": 0, "stopped": ENDED_EARLY}


def scheduler_options(command: Command) -> Command:
    """Add the options that name a running cluster."""
    command = click.option(
        "--scheduler-file",
        type=LocalPath(exists=True, dir_okay=False),
        help="File with the address of the scheduler, instead of --scheduler.",
    )(command)
    return click.option("--scheduler", metavar="ADDRESS", help="Address of the scheduler that runs the jobs.")(command)


@contextmanager
def running(scheduler: str | None, scheduler_file: str | None) -> Iterator[Any]:
    """Yield a client of the running cluster that the options name."""
    if (scheduler is None) == (scheduler_file is None):
        raise click.UsageError("a job needs a running cluster: give --scheduler or --scheduler-file.")
    from dasksvm import config, runtime

    timeout = config.seconds_of("connect-timeout")
    text = f"waiting up to {timeout:g} s for the scheduler {scheduler or f'of {scheduler_file}'}"
    notice = Timer(NOTICE, click.echo, [text], {"err": True})
    with ExitStack() as stack:
        notice.start()
        try:
            client = stack.enter_context(runtime.open_client(0, scheduler, scheduler_file, timeout))
        finally:
            notice.cancel()
        yield client


def _named(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from dasksvm.runtime import check_name

    if value is not None:
        try:
            check_name(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


@click.command()
@click.argument("data", type=LocalPath(exists=True, file_okay=False))
@solver_options
@snapshot_options
@click.option("--name", callback=_named, help="First part of the job's id.")
@scheduler_options
@as_json
def submit(
    data: str,
    checkpoint: str | None,
    every: float | None,
    resume: bool,
    name: str | None,
    scheduler: str | None,
    scheduler_file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train on the data set DATA as a job on a cluster.

    The id of the job is printed; the job continues after this command ends. The workers must be able to open DATA under the same
    path.
    """
    import dasksvm

    snapshot_arguments = snapshots(checkpoint, every, resume)
    found = data_set(data).needs_labels()
    estimator = estimator_of(options, found.classes.tolist())
    with running(scheduler, scheduler_file) as client:
        job = dasksvm.submit(found, estimator, client, name=name, **snapshot_arguments)
        if as_json:
            echo_json(asdict(job.status()))
        else:
            click.echo(job.id)


@click.command()
@click.argument("job", required=False)
@scheduler_options
@as_json
def status(job: str | None, scheduler: str | None, scheduler_file: str | None, as_json: bool) -> None:
    """Show the status of JOB, or of all jobs."""
    from dasksvm import Job, jobs

    with running(scheduler, scheduler_file) as client:
        found = [each.status() for each in (jobs(client) if job is None else [Job(job, client)])]
    if as_json:
        echo_json({"jobs": [asdict(each) for each in found]} if job is None else asdict(found[0]))
        return
    for each in found:
        print_job(each)
    if not found:
        click.echo("no jobs")


@click.command()
@click.argument("job")
@scheduler_options
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@as_json
def attach(job: str, scheduler: str | None, scheduler_file: str | None, quiet: bool, as_json: bool) -> None:
    """Show the progress of JOB until it ends.

    Ctrl-C ends this command only; the job continues. The exit code is 0 if the job is done, 3 if a budget ended it early, 4
    if it failed, was cancelled or was lost.
    """
    from dasksvm import Job

    with running(scheduler, scheduler_file) as client:
        try:
            found = Job(job, client).attach(() if quiet else None)
        except KeyboardInterrupt:
            click.echo(f"\ndetached: the job {job} continues", err=True)
            raise
    if as_json:
        echo_json(asdict(found))
    else:
        print_job(found)
    click.get_current_context().exit(EXITS.get(found.state, FAILED))


@click.command()
@click.argument("job")
@scheduler_options
def cancel(job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Cancel JOB; no model is written.

    Its snapshots are kept. A job that has ended is removed from the cluster, with its model.
    """
    from dasksvm import Job

    with running(scheduler, scheduler_file) as client:
        found = Job(job, client)
        over = found.status().over
        found.cancel()
    click.echo(f"{'removed' if over else 'cancelled'} {job}")


@click.command()
@click.argument("job")
@click.argument("model", type=LocalPath(dir_okay=False))
@scheduler_options
def fetch(job: str, model: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Wait for JOB to end and write its model to MODEL.

    The cluster keeps a copy.
    """
    from dasksvm import Job

    check_folder(model)
    with running(scheduler, scheduler_file) as client:
        found = Job(job, client)
        if not found.status().over:
            click.echo(f"waiting for the job {job}; `dasksvm attach` shows its progress", err=True)
        trained = found.fetch()
    trained.save(model)
    click.echo(f"wrote {model}: {trained.support_vectors.shape[0]} support vectors")
