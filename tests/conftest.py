import numpy as np
import pytest

from tests.clusters import solver


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def alone(data):
    """The model of a module's `data`, trained in this process."""
    return solver().fit(data)
