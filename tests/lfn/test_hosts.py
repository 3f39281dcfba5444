"""Hosts are set up and queried without a program; a sink takes all arrivals."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pacer_mininet.hosts import HostError, ping, write_settings
from pacer_mininet.namespaces import in_namespace_of
from pacer_mininet.sink import WAKE_BYTES, Sink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not run: hosts: needs root")

HERE = SimpleNamespace(name="h1", pid=os.getpid())
"""A host in the namespace that the test runs in."""


def test_a_host_that_answers_is_reached() -> None:
    ping(HERE, "127.0.0.1", timeout_s=10)


def test_an_address_that_cannot_be_reached_is_named() -> None:
    command = ["unshare", "--net", "sh", "-c", "echo there; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as alone:
        assert alone.stdout is not None
        alone.stdout.readline()
        host = SimpleNamespace(name="h2", pid=alone.pid)
        # Its loopback is down.
        with pytest.raises(HostError, match=r"h2 cannot reach 127\.0\.0\.1: Network is unreach"):
            ping(host, "127.0.0.1", timeout_s=10)
        alone.kill()


def test_a_setting_that_is_not_there_is_named_unless_it_may_be_absent() -> None:
    with pytest.raises(HostError, match=r"h1: net\.ipv4\.no_such=1: No such file"):
        write_settings(HERE, {"net.ipv4.no_such": "1"})
    write_settings(HERE, {"net.ipv4.no_such": "1"}, ignore_absent=True)


def test_what_work_raises_comes_back_from_the_namespace() -> None:
    def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        in_namespace_of(os.getpid(), fail)
    assert in_namespace_of(os.getpid(), lambda: 7) == 7
    with pytest.raises(OSError, match="No such file"):
        in_namespace_of(2**22 + 1, lambda: 7)


@contextlib.contextmanager
def listening(window_bytes: int = 1 << 20) -> Iterator[int]:
    """Have a sink listen on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    sink = Sink(window_bytes)
    sink.listen(HERE, port)
    sink.start()
    try:
        yield port
    finally:
        sink.close()


def test_a_sink_takes_far_more_than_buffers_hold_and_closes_after_the_sender() -> None:
    sent = bytes(1 << 20)
    with listening() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as sender:
        for _ in range(64):
            sender.sendall(sent)
        # Less than it wakes for.
        sender.sendall(b"the end")
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""


def test_a_sink_takes_several_connections_at_once() -> None:
    with listening() as port, contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(8)
        ]
        for sender in senders:
            sender.sendall(bytes(4 * WAKE_BYTES))
        for sender in reversed(senders):
            sender.shutdown(socket.SHUT_WR)
            assert sender.recv(1) == b""


def test_a_sink_that_is_closed_refuses_and_leaves_no_thread() -> None:
    with listening() as port:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
    assert not [thread for thread in threading.enumerate() if thread.name == "sink"]
