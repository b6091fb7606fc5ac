"""The rendezvous before JAX starts, with threads in place of processes."""

from __future__ import annotations

import dataclasses
import errno
import socket
import threading

import pytest
from support.meeting import close, met
from support.patience import PATIENCE

from srunbook.distributed import find_place
from srunbook.distributed._connection import Connection
from srunbook.distributed._monitor import Monitor

SHORT = 0.4
"""Seconds that a rendezvous waits which does not come about."""


def test_all_come(places):
    """When all are there, process 0 has a connection to each, and each one to process 0."""
    results = met(places(4))

    assert {rank: sorted(found) for rank, found in results.items()} == {0: [1, 2, 3], 1: [0], 2: [0], 3: [0]}
    close(results)


def test_port_is_free_afterwards(places):
    """After the rendezvous the coordinator's port can be listened at, though the connections stay."""
    all_places = places(2)
    results = met(all_places)

    with socket.create_server(("", all_places[0].port)):
        pass
    close(results)


def test_one_is_missing(places):
    """When one does not come in time, all others get an error that names it and the way to start it."""
    results = met(places(3)[:2], 2.0)

    for rank in (0, 1):
        assert "num_processes=3, but 2 of 3 processes came" in results[rank]
        assert "missing: rank 2. " in results[rank]
        assert "srun --ntasks=3 --kill-on-bad-exit=1" in results[rank]


def test_nobody_listens(places):
    """Without process 0, the error says that nobody listens at its address, and which variables name it."""
    results = met(places(2)[1:], SHORT)

    assert "nobody listens there" in results[1]
    assert "SLURM_COORDINATOR_ADDRESS" in results[1]


def test_unknown_name(places):
    """A coordinator whose name is not known is named in the error."""
    place = dataclasses.replace(places(2)[1], host="no-such-host.invalid")
    results = met([place], SHORT)

    assert "no-such-host.invalid" in results[1]


def test_silent_name_server(places, monkeypatch):
    """A name server that does not answer does not hold up the error."""
    silent = threading.Event()

    def look_up(*_, **__):
        silent.wait()
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "create_connection", look_up)
    results = met(places(2)[1:], SHORT)

    assert "name server" in results[1]
    silent.set()


@pytest.fixture
def listener():
    """Listen at the coordinator's port, as somebody else's server does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        yield server


@pytest.fixture
def one_of_two(listener):
    """Place the second of two processes, whose coordinator is that server."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    return find_place({}, coordinator_address=address, num_processes=2, process_id=1)


def test_silent_stranger(one_of_two):
    """A server that accepts and says nothing holds nobody up, and the error says what it does."""
    results = met([one_of_two], 1.0)

    assert "something else listens there, and is silent" in results[1]


def test_stranger_that_hangs_up_until_the_end(one_of_two, listener):
    """A last connection that had little time does not hide what the ones before it met."""
    kept = []

    def hang_up():
        kept.append(listener.accept()[0])
        kept.pop().close()
        kept.append(listener.accept()[0])  # in the last second: it only has to wait until time is up

    threading.Thread(target=hang_up, daemon=True).start()
    results = met([one_of_two], 0.9)
    for one in kept:
        one.close()

    assert "something else listens there. " in results[1]


def test_silent_rank_0(one_of_two, listener):
    """A process 0 that took this one in, and falls silent then, does not hold it up for ever."""
    kept = []

    def take_in():
        connection = Connection(listener.accept()[0])
        connection.send(here=True)
        kept.append(connection)

    threading.Thread(target=take_in, daemon=True).start()
    results = met([one_of_two], 1.0)
    for connection in kept:
        connection.close()

    assert "rank 0 is there, but did not start JAX" in results[1]


def test_packets_are_dropped(one_of_two, listener):
    """Where packets are dropped on the way, the error asks for the firewall."""
    fill = [socket.socket() for _ in range(8)]  # the queue of the server is full then, and Linux drops what comes
    for one in fill:
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
    results = met([one_of_two], 3.0)
    for one in fill:
        one.close()

    assert "nothing answers; is there a firewall between the nodes?" in results[1]


def test_shortest_deadline_counts(places):
    """All hear who is missing when the first one's time is up, and in how many seconds that was."""
    three = places(3)
    results = {}
    patient = threading.Thread(target=lambda: results.update(met(three[:1], PATIENCE)))
    patient.start()
    others = met(three[1:2], 2.0)
    patient.join()
    results.update(others)

    assert all("within 2 s; missing: rank 2. " in results[rank] for rank in (0, 1)), results


def test_port_that_cannot_be_used(places, monkeypatch):
    """A port that the system does not give is named with the system's reason."""

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    results = met(places(2)[:1])

    assert "cannot be used (Permission denied)" in results[0]
    assert "JAX_COORDINATOR_PORT" in results[0]


def test_port_in_use(places):
    """A port that somebody else listens at is refused at once, with the variable that names another."""
    place = places(2)[0]
    with socket.create_server(("", place.port)):
        results = met([place])

    assert f"port {place.port}" in results[0]
    assert "is in use" in results[0]
    assert "JAX_COORDINATOR_PORT" in results[0]


def test_other_counts(places):
    """Processes that count differently all hear of it."""
    two, three = places(2), places(3)
    results = met([two[0], three[1]])

    assert all("rank 1" in text and "counts 3 processes" in text and "counts 2" in text for text in results.values())


def test_twice_the_same_rank(places):
    """Two processes with the same number all hear of it."""
    three = places(3)
    results = met([three[0], three[1], dataclasses.replace(three[1])])

    assert all("two processes say that they are rank 1" in text for text in results.values())


def test_another_program(places):
    """A process of another program is sent away, and the rendezvous goes on."""
    two = places(2)
    stranger = dataclasses.replace(two[1], process_id=7, key="99.0.0 8")
    results = {}
    waiting = threading.Thread(target=lambda: results.update(met(two[:1])))
    waiting.start()
    sent_away = met([stranger])
    results.update(met(two[1:]))
    waiting.join()

    assert "belongs to another program" in sent_away[7]
    assert {rank: sorted(found) for rank, found in results.items()} == {0: [1], 1: [0]}
    close(results)


class Ends:
    """Collects how processes would have ended."""

    def __init__(self):
        self.said = {}
        self.some = threading.Event()

    def of(self, rank):
        """Make the function that would end the process of a rank."""

        def end(text, status):
            self.said.setdefault(rank, (text, status))
            self.some.set()

        return end


@pytest.fixture
def monitored(places):
    """Start three processes that monitor each other; yield their monitors, and how they end."""
    ends = Ends()
    results = met(places(3))
    monitors = [Monitor(place, results[place.process_id], ends.of(place.process_id)) for place in places(3)]
    yield monitors, ends
    for monitor in monitors:
        monitor.leave()
    close(results)


def test_one_fails(monitored, until):
    """When one process fails, all others end with its status and its reason."""
    monitors, ends = monitored
    monitors[1].fail("ValueError: boom", 3)

    until(lambda: len(ends.said) == 3)
    assert {status for _, status in ends.said.values()} == {3}
    assert "rank 1 failed: ValueError: boom" in ends.said[0][0]
    assert "rank 1 failed: ValueError: boom" in ends.said[2][0]


def test_one_dies(monitored, until):
    """When one process is gone without a word, all others end and name it."""
    monitors, ends = monitored
    monitors[2].connections[0].socket.shutdown(socket.SHUT_RDWR)

    until(lambda: {0, 1} <= ends.said.keys())
    assert "rank 2 ended without a word" in ends.said[0][0]
    assert "rank 2 ended without a word" in ends.said[1][0]


def test_all_leave(monitored):
    """When all say goodbye, in any order, nobody ends for it."""
    monitors, ends = monitored
    for number in (1, 0, 2):
        monitors[number].leave()

    assert not ends.some.wait(0.3)
