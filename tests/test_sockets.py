"""Which addresses a local cluster listens on: none that another machine reaches, unless it is asked to."""

import ipaddress

import psutil
import pytest

from tests.clusters import cluster


def listening():
    """Addresses that this process and those it has started listen on."""
    this = psutil.Process()
    found = set()
    for process in [this, *this.children(recursive=True)]:
        try:
            connections = process.net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        found |= {
            (process.pid, *connection.laddr) for connection in connections if connection.status == psutil.CONN_LISTEN
        }
    return found


def opened(before):
    return listening() - before


def loopback(addresses):
    return all(ipaddress.ip_address(host).is_loopback for _, host, _ in addresses)


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0"])
def test_a_cluster_of_threads_listens_on_loopback_only(address):
    before = listening()
    with cluster(2, dashboard_address=address):
        found = opened(before)
    # The scheduler's dashboard, and nothing of the workers.
    assert len(found) == 1
    assert loopback(found)


@pytest.mark.cluster
def test_a_cluster_of_processes_listens_on_loopback_only():
    before = listening()
    with cluster(2, processes=True) as client:
        found = opened(before)
        workers = client.run(lambda dask_worker: (dask_worker.address, list(dask_worker.services)))
        nannies = client.run(lambda dask_worker: dask_worker.address, nanny=True)
    assert loopback(found)
    # Scheduler and dashboard, three nannies, three workers: no HTTP server of a worker.
    assert len(found) == 2 + 3 + 3
    assert all(address.startswith("tcp://127.0.0.1:") and not services for address, services in workers.values())
    assert all(address.startswith("tcp://127.0.0.1:") for address in nannies.values())


@pytest.mark.cluster
def test_a_cluster_listens_where_it_is_told_to():
    before = listening()
    with cluster(1, processes=True, host="0.0.0.0", dashboard_address="127.0.0.1:0"):
        found = opened(before)
    hosts = [host for _, host, _ in found]
    # All but the dashboard.
    assert len(found) == 6
    assert hosts.count("0.0.0.0") == 5
    assert hosts.count("127.0.0.1") == 1
