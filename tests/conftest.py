import os

import hypothesis
import numpy as np
import pytest

from dasksvm import SMOSVC, LaSVC
from tests.clusters import Brake, Processes, cluster, noisy, quick, recovered, solver

# No deadline: how long an example takes depends on the machine.
hypothesis.settings.register_profile("dasksvm", deadline=None)
hypothesis.settings.load_profile("dasksvm")


# A session with at least this many tests needs most of the compiled functions.
MANY = 1000


def pytest_collection_finish(session):
    """Before a large session, let two processes compile one half each of what both would compile otherwise."""
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if len(session.items) < MANY or process not in ("gw0", "gw1"):
        return
    pairs, online = SMOSVC(working_set="hmg"), LaSVC(epochs="converged")
    halves = {
        "gw0": [(online, "float32"), (pairs, "float32"), (SMOSVC(), "float32")],
        "gw1": [(pairs, "float64"), (SMOSVC(), "float64"), (online, "float64")],
    }
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = X[:, 0] + rng.normal(size=200) > 0
    for estimator, dtype in halves[process]:
        estimator.set_params(dtype=dtype, random_state=0).fit(X, y)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data set that is large enough for tests to interfere with a run; a module may override it."""
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=8_000)


@pytest.fixture(scope="module")
def alone(data):
    """The model of the module's `data`, trained in this process."""
    return solver().fit(data)


@pytest.fixture(scope="module")
def processes():
    """A cluster of separate processes, which the tests of a module may kill."""
    with quick(), cluster(2, processes=True) as client:
        yield client


@pytest.fixture
def client(processes):
    """The client of `processes`, after all killed workers are back; its workers are slowed down by `brake`."""
    client = recovered(processes, 3)
    client.register_plugin(Brake())
    return client


@pytest.fixture
def start(tmp_path):
    started = []

    def one():
        folder = tmp_path / f"cluster-{len(started)}"
        folder.mkdir()
        started.append(Processes(folder))
        return started[-1]

    yield one
    for processes in started:
        processes.stop()
