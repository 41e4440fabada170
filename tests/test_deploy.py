"""What is in deploy/: manifests against the schemas of those who read them, and scripts against stand-ins."""

import copy
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import click
import dask.config
import jsonschema
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

from dasksvm.cli import main as cli
from dasksvm.runtime.cluster import SETTINGS

DEPLOY = Path(__file__).parent.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
GROUP = "kubernetes.dask.org/v1"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


@cache
def operator_schemas() -> dict[str, dict[str, Any]]:
    """Read the operator's resource definitions, with the pod specs in full, as its Helm chart installs them."""
    # Not imported: the schemas are all that is wanted of it.
    (package,) = importlib.util.find_spec("dask_kubernetes").submodule_search_locations
    folder = Path(package) / "operator" / "deployment" / "helm" / "dask-kubernetes-operator" / "crds"
    found = {}
    for path in folder.glob("*.yaml"):
        (definition,) = documents(path)
        (version,) = definition["spec"]["versions"]
        found[definition["spec"]["names"]["kind"]] = strict(version["schema"]["openAPIV3Schema"])
    return found


def strict(schema: Any) -> Any:
    """Refuse what a schema does not name, as the API server does with strict validation, and spell its extensions out."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string") is True:
        made |= {"type": ["integer", "string"]}
    if schema.get("nullable") is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    return made


def validate(document: dict[str, Any]) -> None:
    schema = copy.deepcopy(operator_schemas()[document["kind"]])
    assert document["apiVersion"] == GROUP
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    jsonschema.Draft202012Validator(schema).validate(document)
    for pods in pod_specs(document):
        rely(pods)


def pod_specs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = document["spec"]
    cluster = spec["cluster"]["spec"] if document["kind"] == "DaskJob" else spec
    yield from (cluster[part]["spec"] for part in ("scheduler", "worker") if part in cluster)
    if document["kind"] == "DaskJob":
        yield spec["job"]["spec"]


def rely(pods: dict[str, Any]) -> None:
    """Check what no schema knows: that the command is one, who runs it, and that it sees the data."""
    (container,) = pods["containers"]
    arguments = container["args"]
    parse(arguments)
    assert pods["securityContext"]["runAsNonRoot"] is True
    assert pods["securityContext"]["runAsUser"] == 1000
    limit, request = container["resources"]["limits"]["memory"], container["resources"]["requests"]["memory"]
    assert limit == request
    assert {variable["name"] for variable in container.get("env", ())} <= settings()
    if arguments[1] != "scheduler":
        (mount,) = container["volumeMounts"]
        (volume,) = pods["volumes"]
        (claim,) = documents(KUBERNETES / "storage.yaml")
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/data")
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def settings() -> set[str]:
    """Name the environment variables that set an option of Dask or of this package that there is."""

    def named(options: dict[str, Any], prefix: str) -> Iterator[str]:
        for name, value in options.items():
            yield from named(value, f"{prefix}{name}__") if isinstance(value, dict) else [f"{prefix}{name}"]

    own = yaml.safe_load((DEPLOY.parent / "dasksvm" / "config" / "dasksvm.yaml").read_text())
    return {name.upper().replace("-", "_") for name in named(dask.config.config | own, "DASK_")}


def parse(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line with the command that it calls; paths need not be there."""
    program, name, *options = arguments
    commands = {
        ("dask", "scheduler"): dask_scheduler.main,
        ("dask", "worker"): dask_worker.main,
        ("dasksvm", "train"): cli.main.commands["train"],
    }
    command = copy.copy(commands[program, name])
    command.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = click.STRING
    return command.make_context(name, options, ignore_unknown_options=False).params


def worker_groups(path: Path) -> dict[str, list[str]]:
    """Give cluster and resource of the worker groups of a file, with the arguments of their workers."""
    found = {}
    for document in documents(path):
        spec = document["spec"]
        of_group = document["kind"] == "DaskWorkerGroup"
        cluster = spec["cluster"]["spec"] if document["kind"] == "DaskJob" else spec
        name = spec["cluster"] if of_group else document["metadata"]["name"]
        (container,) = cluster["worker"]["spec"]["containers"]
        found[name, parse(container["args"])["resources"]] = container["args"]
    return found


@pytest.mark.parametrize("name", ["cluster.yaml", "job.yaml"])
def test_manifests_are_the_operators(name: str):
    for document in documents(KUBERNETES / name):
        validate(document)


@pytest.mark.parametrize(("name", "cluster"), [("cluster.yaml", "dasksvm"), ("job.yaml", "dasksvm-train")])
def test_coordinator_and_tiles_have_groups_of_one_cluster(name: str, cluster: str):
    assert set(worker_groups(KUBERNETES / name)) == {(cluster, "compute=1"), (cluster, "coordinator=1")}
    first, group = documents(KUBERNETES / name)
    spec = first["spec"]["cluster"]["spec"] if first["kind"] == "DaskJob" else first["spec"]
    assert spec["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == cluster
    assert group["spec"]["worker"]["replicas"] == 1


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        *way, last = path.split("/")
        for part in way:
            document = document[int(part) if part.isdigit() else part]
        if value is None:
            del document[last]
        else:
            document[last] = value

    return apply


JOB = "spec/job/spec/containers/0"
WORKER = "spec/cluster/spec/worker/spec/containers/0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec/jobs", {}),
        ("spec/job", None),
        ("spec/cluster/spec/worker/replica", 3),
        ("spec/cluster/spec/worker/replicas", "two"),
        ("spec/cluster/spec/scheduler/service/port", 8786),
        ("spec/job/spec/restartPolice", "Never"),
        (f"{JOB}/args", "dasksvm train"),
        (f"{JOB}/args", ["dasksvm", "train", "/data/train.zarr", "/data/model", "--checkpoints=/data/snapshots"]),
        (f"{JOB}/arg", []),
        (f"{JOB}/env/0/val", "1"),
        (f"{JOB}/env/0/name", "DASK_DASKSVM__WORKERS_TIMEOUT"),
        (f"{WORKER}/args", ["dask", "worker", "--resource=compute=1"]),
        (f"{WORKER}/resource", {}),
        (f"{WORKER}/resources/limit", {}),
        (f"{WORKER}/resources/limits/memory", "8Gi"),
        (f"{WORKER}/volumeMount", []),
        (f"{WORKER}/volumeMounts/0/path", "/data"),
        (f"{WORKER}/volumeMounts/0/name", "datas"),
        ("spec/cluster/spec/worker/spec/volumes/0/persistentVolumeClaim/claimName", "dasksvm"),
        ("spec/cluster/spec/worker/spec/securityContext/runAsUser", 0),
    ],
)
def test_a_wrong_manifest_is_noticed(path: str, value: Any):
    job, _ = documents(KUBERNETES / "job.yaml")
    change(path, value)(job)
    with pytest.raises((jsonschema.ValidationError, click.UsageError, AssertionError)):
        validate(job)


def test_job_waits_for_its_pods_and_resumes():
    job, _ = documents(KUBERNETES / "job.yaml")
    assert job["spec"]["job"]["spec"]["restartPolicy"] == "OnFailure"
    (container,) = job["spec"]["job"]["spec"]["containers"]
    parsed = parse(container["args"])
    assert parsed["resume"]
    assert parsed["checkpoint"].startswith("/data/")
    assert parsed["scheduler"] == "$(DASK_SCHEDULER_ADDRESS)"


def test_pod_for_files_is_one():
    (pod,) = documents(KUBERNETES / "files.yaml")
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    schema = operator_schemas()["DaskWorkerGroup"]
    for part in ("spec", "worker", "spec"):
        schema = schema["properties"][part]
    jsonschema.Draft202012Validator(schema).validate(pod["spec"])
    group = next(
        document for document in documents(KUBERNETES / "cluster.yaml") if document["kind"] == "DaskWorkerGroup"
    )
    workers, mine = group["spec"]["worker"]["spec"], pod["spec"]
    for part in ("securityContext", "volumes"):
        assert mine[part] == workers[part]
    for part in ("image", "volumeMounts"):
        assert mine["containers"][0][part] == workers["containers"][0][part]


def test_claim_is_one():
    (claim,) = documents(KUBERNETES / "storage.yaml")
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    schema = operator_schemas()["DaskWorkerGroup"]
    # The definitions have no claims, but claims' templates.
    for part in ("spec", "worker", "spec", "volumes"):
        schema = schema["properties"][part]
    template = schema["items"]["properties"]["ephemeral"]["properties"]["volumeClaimTemplate"]["properties"]["spec"]
    jsonschema.Draft202012Validator(template).validate(claim["spec"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(template).validate(claim["spec"] | {"accessMode": "ReadWriteMany"})
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_compose_file_is_one():
    (compose,) = documents(DEPLOY / "compose.yaml")
    schema = yaml.safe_load(
        (resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text()
    )
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(compose)
    services = compose["services"]
    parsed = {name: parse(services[name]["command"]) for name in ("scheduler", "coordinator", "compute")}
    assert parsed["coordinator"]["resources"] == "coordinator=1"
    assert parsed["compute"]["resources"] == "compute=1"
    assert parse(["dasksvm", *services["train"]["command"]])["resume"]
    assert len({service["image"] for service in services.values()}) == 1
    assert all(service["volumes"] == ["data:/data"] for service in services.values())
    assert all("healthcheck" in services[name] for name in parsed)
    # Who reaches the scheduler can run any code.
    assert services["scheduler"]["ports"] == ["127.0.0.1:8787:8787"]
    wrong = copy.deepcopy(compose)
    wrong["services"]["compute"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)


def test_image_is_set_up_for_workers():
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line and not line.startswith("#")]
    words = [line.split() for line in lines]
    arguments = dict(rest[0].split("=") for word, *rest in words if word == "ARG" and "=" in rest[0])
    assert tuple(map(int, arguments["PYTHON"].split("."))) >= (3, 12)
    assert [rest for word, *rest in words if word == "USER"] == [["1000:1000"]]
    (variables,) = [dict(pair.split("=", 1) for pair in rest) for word, *rest in words if word == "ENV"]
    assert variables["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] == "false"
    # As local_cluster sets them.
    for name, value in SETTINGS.items():
        if "environ" in name:
            assert variables[name.split(".")[-1]] == str(value)
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    for word, *rest in words:
        if word == "COPY" and not rest[0].startswith("--from"):
            assert all(f"!{source}" in ignored and (DEPLOY.parent / source).exists() for source in rest[:-1])


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Give a function that starts the batch script among stand-ins that write down how they are called."""
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    record = f'echo "$(basename "$0") $*" >> {tmp_path}/calls'
    scripts = {
        "dask": f'{record}\n[ "$1" = scheduler ] && echo "{{}}" > "$3"\nexec sleep 60',
        "srun": f"{record}\nexec sleep 60",
        "scontrol": record,
        "dasksvm": f"trap 'echo ended >> {tmp_path}/calls; exit 4' TERM\n{record}\n"
        f"for _ in $(seq 600); do [ -e {tmp_path}/code ] && exit $(cat {tmp_path}/code); sleep 0.1; done",
    }
    for name, text in scripts.items():
        (stand_ins / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (stand_ins / name).chmod(0o755)
    slurm = {"SLURM_NTASKS": "6", "SLURM_MEM_PER_CPU": "4000", "SLURM_JOB_ID": "7"}
    environment = os.environ | slurm | {"PATH": f"{stand_ins}:{os.environ['PATH']}"}

    processes = []

    def start(*arguments: str, **more: str) -> subprocess.Popen[str]:
        line = ["bash", str(DEPLOY / "slurm" / "job.sh"), *arguments]
        told = {"stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(line, env=environment | more, cwd=tmp_path, start_new_session=True, **told)
        processes.append(process)
        return process

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def wait_for(path: Path, words: str) -> list[list[str]]:
    give_up = time.monotonic() + 30
    while not path.exists() or words not in path.read_text():
        assert time.monotonic() < give_up, path.exists() and path.read_text()
        time.sleep(0.05)
    return [line.split() for line in path.read_text().splitlines()]


def test_batch_script_trains_on_workers_of_both_kinds(batch, tmp_path: Path):
    process = batch("d.zarr", "m", "kept", "--c", "3")
    wait_for(tmp_path / "calls", "compute=1")
    calls = wait_for(tmp_path / "calls", "dasksvm")
    (tmp_path / "code").write_text("3")
    _, told = process.communicate(timeout=30)
    assert process.returncode == 3, told
    (trained,) = [call for call in calls if call[0] == "dasksvm"]
    parsed = parse(trained)
    assert (parsed["data"], parsed["model"], parsed["checkpoint"], parsed["C"]) == ("d.zarr", "m", "kept", 3.0)
    assert parsed["resume"]
    steps = [call for call in calls if call[0] == "srun"]
    workers = [parse(step[step.index("dask") :]) for step in steps]
    found = {worker["resources"]: (worker["nthreads"], worker["memory_limit"]) for worker in workers}
    assert found == {"coordinator=1": (2, "7200MiB"), "compute=1": (1, "3600MiB")}
    assert {tuple(step[2:4]) for step in steps} == {
        ("--ntasks=1", "--cpus-per-task=2"),
        ("--ntasks=3", "--cpus-per-task=1"),
    }
    schedulers = {worker["scheduler_file"] for worker in workers} | {parsed["scheduler_file"]}
    assert schedulers == {"kept/scheduler-7-0.json"}
    assert not any((tmp_path / "kept").iterdir())
    assert not [call for call in calls if call[0] == "scontrol"]


def test_batch_script_is_queued_again_before_its_time_is_up(batch, tmp_path: Path):
    process = batch("d.zarr", "m", "kept")
    wait_for(tmp_path / "calls", "dasksvm")
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=30)
    calls = wait_for(tmp_path / "calls", "ended")
    assert ["scontrol", "requeue", "7"] in calls


def test_batch_script_says_what_it_lacks(batch):
    process = batch("d.zarr")
    assert "usage" in process.communicate(timeout=30)[1]
    assert process.returncode == 2
    process = batch("d.zarr", "m", "kept", SLURM_NTASKS="3")
    assert "at least 4" in process.communicate(timeout=30)[1]
    assert process.returncode == 2
