"""TLS from the certificates to the model: processes, command line and client as a user has them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dask.config
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from distributed import Client
from distributed.security import Security

from dasksvm import load
from dasksvm.runtime.client import use_client
from tests.clusters import cluster, digest, noisy, solver

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the authority it trusts."""

    authority: Path
    certificate: Path
    key: Path

    def options(self) -> list[str]:
        return ["--tls-ca-file", str(self.authority), "--tls-cert", str(self.certificate), "--tls-key", str(self.key)]

    def environment(self) -> dict[str, str]:
        """As dask.config takes it from the environment of a client."""
        return {
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(self.authority),
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": str(self.certificate),
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": str(self.key),
        }

    def security(self) -> Security:
        return Security(
            tls_ca_file=str(self.authority), tls_client_cert=str(self.certificate), tls_client_key=str(self.key)
        )


def issued(folder: Path) -> Identity:
    """Make an authority and a certificate that it signed."""
    root, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    identity = Identity(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    identity.authority.write_bytes(signed(root, "authority", root))
    identity.certificate.write_bytes(signed(key, "dasksvm", root))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


def signed(key: EllipticCurvePrivateKey, name: str, root: EllipticCurvePrivateKey) -> bytes:
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, "authority"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=key is root, path_length=None), critical=True)
        .sign(root, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "data.zarr", rows=1500)


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> Identity:
    return issued(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Identity:
    return issued(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def address(ours: Identity, tmp_path_factory) -> Iterator[str]:
    """Start a scheduler and workers from the command line, and give the scheduler's address."""
    folder = tmp_path_factory.mktemp("cluster")
    common = ["--scheduler-file", str(folder / "scheduler.json"), *ours.options()]
    scheduler = ["scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *common]
    with ExitStack() as stack:
        stack.enter_context(started(folder / "scheduler.log", *scheduler))
        for at, resource in enumerate(("coordinator=1", "compute=1", "compute=1")):
            worker = ["worker", "--nthreads", "1", "--resources", resource, "--no-dashboard", *common]
            stack.enter_context(started(folder / f"worker-{at}.log", *worker))
        with Client(scheduler_file=str(folder / "scheduler.json"), security=ours.security()) as client:
            client.wait_for_workers(3, timeout=120)
            found = client.scheduler.address
        assert found.startswith("tls://")
        yield found


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[None]:
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments], cwd=ROOT, env=environment, stdout=file, stderr=file
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def command(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    # With this patience a refusal that were only a timeout would not come before the test's own.
    patient = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10m"}
    line = [sys.executable, "-m", "dasksvm", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, env=os.environ | patient | environment, capture_output=True, text=True)


def test_command_line(data, address: str, ours: Identity, tmp_path: Path):
    model = tmp_path / "model"
    done = command(ours.environment(), "train", data.path, model, "--c", 3, "--seed", 1, "--scheduler", address)
    assert done.returncode == 0, done.stderr
    assert address in done.stderr
    expected = solver().fit(data).model_
    found = load(model)
    assert np.array_equal(found.coefficients, expected.coefficients)
    assert np.array_equal(found.support_vectors, expected.support_vectors)
    assert np.array_equal(found.intercepts, expected.intercepts)
    done = command(ours.environment(), "evaluate", data.path, model, "--scheduler", address)
    assert done.returncode == 0, done.stderr
    assert "error" in done.stdout


def test_client_with_security(data, alone, address: str, ours: Identity):
    with Client(address, security=ours.security(), direct_to_workers=True) as client:
        assert digest(solver(client=client).fit(data)) == digest(alone)
        rows, _ = data.as_dask()
        assert np.array_equal(alone.predict(rows).compute(), alone.predict(rows.compute()))


@pytest.mark.parametrize("who", ["no certificate", "plain tcp", "another authority", "a certificate it did not sign"])
def test_strangers_are_refused(who: str, data, address: str, ours: Identity, theirs: Identity, tmp_path: Path):
    impostor = Identity(ours.authority, theirs.certificate, theirs.key)
    environment, scheduler, told = {
        "no certificate": ({}, address, "TLS configuration"),
        "plain tcp": (ours.environment(), address.replace("tls://", "tcp://"), "tcp://"),
        "another authority": (theirs.environment(), address, "certificate"),
        "a certificate it did not sign": (impostor.environment(), address, "tls://"),
    }[who]
    done = command(environment, "train", data.path, tmp_path / "model", "--scheduler", scheduler)
    assert done.returncode == 4, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("dasksvm: could not reach the scheduler: ")
    assert told in line
    assert not (tmp_path / "model").exists()


def test_an_address_needs_certificates(address: str):
    with pytest.raises(ConnectionError, match="TLS configuration"), use_client(address):
        pass


def test_local_cluster_is_encrypted_where_that_is_demanded(data, alone, ours: Identity):
    files = {"ca-file": ours.authority}
    for role in ("scheduler", "worker", "client"):
        files |= {f"{role}.cert": ours.certificate, f"{role}.key": ours.key}
    settings = {f"distributed.comm.tls.{name}": str(file) for name, file in files.items()}
    with (
        dask.config.set({"distributed.comm.require-encryption": True, **settings}),
        cluster(1, processes=True) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        assert digest(solver(client=client).fit(data)) == digest(alone)
