"""The rendezvous among port scanners, idle connections and other people's servers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.meeting import close, met

from srunbook.distributed import find_place
from srunbook.distributed._connection import Connection
from srunbook.distributed._monitor import Monitor, end_process

NOISE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"[1]\n",
    b"null\n",
    b'{"rank": "x"}\n',
    b"x" * 9000,
    b"[" * 4000 + b"\n",
    b'{"rank": ' * 700 + b"\n",
    b'{"key": "\xff\xfe"}\n',
    b"\x00" * 40 + b"\n",
    b'{"rank": ' + b"9" * 4200 + b"}\n",
    b'{"key": "arguments 2", "rank": true, "node": "n", "left": 9, "timeout": 9}\n',
    b'{"key": "arguments 2", "rank": 1.0, "node": "n", "left": 9, "timeout": 9}\n',
    b'{"key": "arguments 2", "rank": 1, "node": "n", "left": -1e999999, "timeout": 9}\n',
    b'{"key": "arguments 2", "rank": 1, "node": "n", "left": -1' + b"0" * 400 + b', "timeout": 9}\n',
    b'{"key": "arguments 2", "rank": 1, "node": "n", "left": NaN, "timeout": NaN}\n',
    b'{"key": "arguments 2", "rank": 1, "node": ["n"], "left": 9, "timeout": 9}\n',
    b'{"key": "arguments 2", "rank": 1}\n',
]
"""What is no message of ours, though some of it nearly is."""


def knocked(place, sent):
    """Connect to rank 0 as soon as it listens, send something, and keep the connection."""
    for _ in range(400):
        with contextlib.suppress(ConnectionRefusedError):
            noise = socket.create_connection((place.host, place.port))
            break
        time.sleep(0.02)
    with contextlib.suppress(OSError):
        noise.sendall(sent)
    return noise


@contextlib.contextmanager
def waiting(place, timeout=20.0):
    """Let rank 0 wait in the background; yield the results, which it has when the block ends."""
    results = {}
    thread = threading.Thread(target=lambda: results.update(met([place], timeout)))
    thread.start()
    yield results
    thread.join()


@pytest.mark.parametrize("sent", NOISE, ids=lambda sent: repr(sent[:24]))
def test_noise(places, sent):
    """A port scanner and other noise do not disturb the rendezvous."""
    two = places(2)
    with waiting(two[0]) as results:
        noise = knocked(two[0], sent)
        time.sleep(0.05)  # rank 0 hears the noise first
        results.update(met(two[1:]))
    noise.close()

    assert {rank: sorted(found) for rank, found in results.items()} == {0: [1], 1: [0]}
    close(results)


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"[" * 4000 + b"\n",
        b"\xff\xfe\n",
        b"x" * 90_000,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"{}\n",
        b'{"go": true}\n{"go": 1e999}\n',
        b'{"error": ["a"]}\n',
    ],
    ids=lambda sent: repr(sent[:24]),
)
def test_foreign_listener(sent):
    """Somebody else's server, whatever it answers, is named in the error of a rank that came to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        place = find_place({}, coordinator_address=address, num_processes=2, process_id=1)

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as connection, contextlib.suppress(OSError):
                        connection.sendall(sent)

        threading.Thread(target=answer, daemon=True).start()
        results = met([place], 0.4)
        listener.shutdown(socket.SHUT_RDWR)

    assert "something else listens there" in results[1]


def test_text_of_a_foreign_listener():
    """An error that a listener sends reaches the terminal short and without control characters."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        place = find_place({}, coordinator_address=address, num_processes=2, process_id=1)

        def answer():
            with listener.accept()[0] as connection:
                connection.sendall(b'{"error": "\\u001b[2J' + b"x" * 4000 + b'"}\n')
                connection.recv(4096)

        threading.Thread(target=answer, daemon=True).start()
        results = met([place], 2.0)

    assert results[1].isprintable()
    assert len(results[1]) < 2500


def test_idle_strangers_are_dropped(places, monkeypatch):
    """A connection that does not say in time who it is, though it sends a byte now and then, is closed."""
    monkeypatch.setattr("srunbook.distributed._server.FIRST_WORD_SECONDS", 0.2)
    two = places(2)
    with waiting(two[0]) as results:
        slow = knocked(two[0], b"{")
        slow.settimeout(0.05)
        closed, deadline = False, time.monotonic() + 5
        while not closed and time.monotonic() < deadline:
            try:
                slow.sendall(b" ")
                closed = slow.recv(1) == b""
            except TimeoutError:
                pass
            except OSError:
                closed = True
        results.update(met(two[1:]))
    slow.close()

    assert closed
    close(results)


RANK_0 = """
import resource, sys
from srunbook.distributed import find_place
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._rendezvous import meet, release
address, files = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
place = find_place({}, coordinator_address=address, num_processes=2, process_id=0)
connections = meet(place, Deadline.after(15))
release(place, connections)
print(sorted(connections))
"""


@pytest.mark.parametrize("files", [256, 40])
def test_many_idle_strangers(places, files):
    """Where hundreds connect and say nothing, more than rank 0 has files for, the real ranks still get in."""
    zero, one = places(2)
    command = [sys.executable, "-c", RANK_0, zero.coordinator_address, str(files)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with contextlib.ExitStack() as stack:
        rank_0 = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
        )
        stack.callback(rank_0.kill)
        stack.enter_context(knocked(zero, b""))
        for _ in range(319):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex((zero.host, zero.port))
        results = met([one], 15)
        said = rank_0.communicate(timeout=20)[0]

    assert said == "[1]\n"
    assert list(results[1]) == [0]
    close(results)


def test_strangers_are_counted(places, monkeypatch):
    """When only strangers come, the error says how many did, beside the ranks that are missing."""
    monkeypatch.setattr("srunbook.distributed._server.FIRST_WORD_SECONDS", 0.1)
    zero = places(2)[0]
    with waiting(zero, 1.0) as results:
        strangers = [knocked(zero, sent) for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"")]
    for stranger in strangers:
        stranger.close()

    assert "missing: rank 1. " in results[0]
    assert f"Besides, 3 other connections to port {zero.port} did not report as a rank" in results[0]


def test_no_files_left(places, monkeypatch):
    """When the system gives no file for a connection, the error says so, and where the limit is."""

    def refuse(_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", refuse)
    zero = places(2)[0]
    with waiting(zero, 0.6) as results:
        knocked(zero, b"").close()

    assert "Too many open files" in results[0]
    assert "ulimit -n" in results[0]


def test_rank_that_comes_again(places):
    """A rank whose connection broke before all were there is taken in when it connects again."""
    three = places(3)
    with waiting(three[0]) as results:
        hello = b'{"key": "%s", "rank": 1, "node": "n", "left": 20, "timeout": 20}\n' % three[0].key.encode()
        first = knocked(three[0], hello)
        assert b"here" in first.recv(100)
        first.close()
        time.sleep(0.1)
        results.update(met(three[1:]))

    assert {rank: sorted(found) for rank, found in results.items()} == {0: [1, 2], 1: [0], 2: [0]}
    close(results)


@pytest.mark.parametrize("letter", ["x", "\N{SNAKE}", "\udc80"])
def test_long_reasons_arrive(places, until, letter, monkeypatch):
    """The reason of a failure reaches the others, in whatever letters, clipped if it is long."""
    monkeypatch.setattr("srunbook.distributed._monitor.LAST_WAIT_SECONDS", 0.1)
    ended = {}
    results = met(places(2))
    monitors = [
        Monitor(place, results[place.process_id], lambda *said, rank=place.process_id: ended.setdefault(rank, said))
        for place in places(2)
    ]
    monitors[1].fail("ValueError: " + letter * 20_000, 3)
    until(lambda: 0 in ended, 20)
    close(results)

    text, status = ended[0]
    assert "rank 1 failed: ValueError: " in text
    assert status == 3
    text.encode()


@pytest.mark.parametrize("status", [b'"x"', b"1e300", b"-1", b"0", b"256", b"null", b"123456789012345678901234567890"])
def test_status_of_a_peer(places, until, status):
    """A failure always ends the others with a status that the system knows, and not with success."""
    zero, ended = places(2)[0], []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        theirs = stack.enter_context(socket.create_connection(server.getsockname()))
        ours = stack.enter_context(server.accept()[0])
        Monitor(zero, {1: Connection(ours)}, lambda *said: ended.append(said))
        theirs.sendall(b'{"failed": "boom", "status": ' + status + b"}\n")
        theirs.shutdown(socket.SHUT_WR)
        until(lambda: ended, 20)

    assert 1 <= ended[0][1] <= 255


def test_end_with_text_that_is_no_unicode(monkeypatch, capfd):
    """A reason that no encoding takes does not keep a process from ending."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    end_process("rank 1 failed: bad\udc80name", 3)

    assert ended == [3]
    assert "bad\\udc80name" in capfd.readouterr().err
