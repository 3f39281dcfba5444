"""Connections: a client with rights is served, whatever other clients do with theirs."""

import contextlib
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from certificates import make_certificate
from test_operations import CLASS, TOKEN, labels, nobody, private, samples_of

from controller_harness import DEADLINE_S, Controller, eventually
from pacer_controller.connections import (
    ADDRESS_MOST,
    ONE_USER_MOST,
    STRANGERS_MOST,
    USERS_MOST,
    Connections,
)
from pacer_controller.http_limits import MAX_HELD_BYTES, BodyLimits
from pacer_controller.problems import Problem
from pacer_controller.refusals import Refusals

Start = Callable[..., Controller]

IDLE = 1000
GUESSERS = 4
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}
PROMPT_S = 30.0
"""A request that is served at all is served in milliseconds; the machine may be busy, though."""


class Client:
    """A connection without a socket."""

    def __init__(self, address: str, due_s: float | None = None) -> None:
        self.address = address
        self.busy = False
        self.ended: str | None = None
        self._due_s = due_s

    def overdue(self, now_s: float) -> str | None:
        """Whether its time is over."""
        late = self._due_s is not None and now_s >= self._due_s
        return "connection-slow" if late else None

    def end(self, cause: str) -> None:
        """Note why it was closed."""
        self.ended = cause


@pytest.fixture
def connections() -> Connections:
    return Connections(Refusals())


def entered(connections: Connections, *addresses: str) -> list[Client]:
    made = [Client(address) for address in addresses]
    for one in made:
        connections.enter(one)
    return made


def test_a_new_stranger_takes_the_place_of_the_oldest_of_its_address(
    connections: Connections,
) -> None:
    (other,) = entered(connections, "10.0.0.2")
    made = entered(connections, *["10.0.0.1"] * ADDRESS_MOST)
    connections.answered(made[0])
    entered(connections, "10.0.0.1")
    assert [one for one in made if one.ended] == [made[1]]
    assert made[1].ended == "connections-of-address-full"
    assert other.ended is None
    assert connections.refusals.counts["connections-of-address-full"] == 1


def test_all_of_an_ipv6_network_is_one_address(connections: Connections) -> None:
    made = entered(connections, *[f"2001:db8::{n:x}" for n in range(ADDRESS_MOST)])
    entered(connections, "2001:db8:0:1::1")
    assert not any(one.ended for one in made)
    entered(connections, "2001:db8::ffff")
    assert made[0].ended


def test_who_has_most_places_of_strangers_loses_one(connections: Connections) -> None:
    few = entered(connections, *[f"10.1.0.{n}" for n in range(STRANGERS_MOST - 10)])
    many = entered(connections, *["10.0.0.1"] * 10)
    entered(connections, "10.2.0.1")
    assert many[0].ended == "connections-of-strangers-full"
    assert not any(one.ended for one in few)
    assert connections.strangers == STRANGERS_MOST


def test_strangers_take_no_place_of_users(connections: Connections) -> None:
    (user,) = entered(connections, "10.0.0.1")
    assert connections.admit(user, "alice") is None
    assert connections.admit(user, "alice") is None
    entered(connections, *["10.0.0.1"] * IDLE)
    assert user.ended is None
    assert (connections.users, connections.strangers) == (1, ADDRESS_MOST)
    connections.leave(user)
    assert connections.users == 0


def test_a_connection_keeps_its_network_when_another_object_takes_its_place(
    connections: Connections,
) -> None:
    silent, asking = Client("192.0.2.1"), Client("192.0.2.1")
    connections.enter(silent)
    connections.replace(silent, asking)
    assert connections.strangers == 1
    assert connections.admit(asking, "one") is None
    assert (connections.strangers, connections.users) == (0, 1)


def test_a_closed_connection_is_not_replaced(connections: Connections) -> None:
    silent = Client("192.0.2.1")
    connections.enter(silent)
    connections.leave(silent)
    connections.replace(silent, Client("192.0.2.1"))
    assert connections.strangers == 0


def test_an_idle_connection_makes_room_for_a_users_next_one(connections: Connections) -> None:
    for number in range(ONE_USER_MOST + 1):
        (one,) = entered(connections, "10.0.0.1")
        one.busy = number != 7
        assert connections.admit(one, "alice") is None
        if number == 7:
            idle = one
    assert idle.ended == "connections-of-user-full"
    (further,) = entered(connections, "10.0.0.1")
    assert connections.admit(further, "alice") == "connections-of-user-full"
    assert connections.admit(further, "bob") is None
    for number in range(USERS_MOST - ONE_USER_MOST - 1):
        (one,) = entered(connections, "10.0.0.1")
        one.busy = True
        assert connections.admit(one, f"user{number}") is None
    (last,) = entered(connections, "10.0.0.1")
    # `further` is idle.
    assert connections.admit(last, "carol") is None
    assert further.ended == "connections-full"


def test_slow_connections_are_closed(connections: Connections) -> None:
    slow, later = Client("10.0.0.1", due_s=10.0), Client("10.0.0.1", due_s=20.0)
    for one in (slow, later):
        connections.enter(one)
    connections.sweep(9.9)
    assert slow.ended is None
    connections.sweep(10.0)
    assert slow.ended == "connection-slow"
    assert later.ended is None
    assert connections.strangers == 1


def test_connections_of_users_that_are_gone_are_closed(connections: Connections) -> None:
    alice, bob = entered(connections, "10.0.0.1", "10.0.0.1")
    connections.admit(alice, "alice")
    connections.admit(bob, "bob")
    connections.end_users(lambda user: user == "alice", "no-token")
    assert alice.ended == "no-token"
    assert bob.ended is None


def test_bodies_share_a_limited_memory() -> None:
    async def nothing(*_: object) -> None:
        pass

    refusals = Refusals()
    limits = BodyLimits(nothing, refusals)
    limits.hold(MAX_HELD_BYTES)
    with pytest.raises(Problem, match="send this one again later"):
        limits.hold(1)
    assert refusals.counts["bytes-full"] == 1


# ---- with sockets ----


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process a thousand sockets."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(4096, before[1])), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def opened(url: str, number: int, *, begin: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections that send the beginning of a request, and nothing more."""
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(number):
            one = socket.create_connection((parts.hostname, parts.port), DEADLINE_S)
            made.append(stack.enter_context(one))
            if begin:
                # The controller may have given its place to another already.
                with contextlib.suppress(OSError):
                    one.sendall(begin)
        yield made


def token_options(folder: Path) -> tuple[str, ...]:
    return "--token-file", str(private(folder / "token", TOKEN))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    "begin",
    [b"", b"GET /v1/switches HTTP/1.1\r\nHost: localhost\r\nX-Slow: "],
    ids=["idle", "slow"],
)
@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
def test_a_thousand_idle_connections_are_in_nobodys_way(
    start_controller: Start, tmp_path: Path, begin: bytes, encrypted: bool
) -> None:
    options = [*nobody(), *token_options(tmp_path)]
    verify: ssl.SSLContext | bool = False
    if encrypted:
        key, certificate = make_certificate(tmp_path / "tls")
        options += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        verify = ssl.create_default_context(cafile=str(certificate))
    controller = start_controller(*options)
    with (
        httpx.Client(
            base_url=controller.url,
            headers=ALLOWED,
            timeout=PROMPT_S,
            trust_env=False,
            verify=verify,
        ) as before,
        contextlib.ExitStack() as stack,
    ):
        assert before.put(CLASS, json={"rate": "1Mbit"}).status_code == 201
        stack.enter_context(opened(controller.url, IDLE, begin=begin))
        for number in range(10):
            # On a connection that was there before, and on a new one.
            assert before.put(CLASS, json={"rate": 10**6 + number}).status_code == 200
            answer = httpx.get(
                controller.url + CLASS,
                headers=ALLOWED,
                timeout=PROMPT_S,
                trust_env=False,
                verify=verify,
            )
            assert answer.json()["rate_bps"] == 10**6 + number
        said = before.get("/v1/controller").json()
        assert said["connections"]["strangers"] <= ADDRESS_MOST
        # A connection without TLS is refused at once.
        cause = "handshake" if encrypted and begin else "connections-of-address-full"
        assert said["refusals"][cause] >= IDLE - ADDRESS_MOST
        metrics = samples_of(before.get("/metrics").text)
        assert metrics["pacer_refusals_total"][labels(cause)] >= IDLE - ADDRESS_MOST
        assert metrics["pacer_connections"][labels("user")] >= 1


def test_who_has_no_right_is_in_nobodys_way_at_full_speed(
    start_controller: Start, tmp_path: Path
) -> None:
    controller = start_controller(*nobody(), *token_options(tmp_path))
    over = threading.Event()

    def guess(number: int) -> int:
        denied = 0
        headers = {"Authorization": f"Bearer wrong{number}"}
        with httpx.Client(base_url=controller.url, timeout=PROMPT_S, trust_env=False) as http:
            while not over.is_set():
                # Another one may have taken its place.
                with contextlib.suppress(httpx.TransportError):
                    answer = http.get("/v1/state", headers=headers)
                    assert answer.status_code == 401
                    assert answer.headers["connection"] == "close"
                    denied += 1
        return denied

    with (
        ThreadPoolExecutor(GUESSERS) as pool,
        httpx.Client(
            base_url=controller.url, headers=ALLOWED, timeout=PROMPT_S, trust_env=False
        ) as http,
    ):
        guessing = [pool.submit(guess, number) for number in range(GUESSERS)]
        try:
            answers = [http.put(CLASS, json={"rate": 10**6 + n}).status_code for n in range(50)]
        finally:
            over.set()
        denied = sum(one.result() for one in guessing)
        assert answers == [201] + [200] * 49
        counts = http.get("/v1/controller").json()["refusals"]
        assert counts["no-token"] >= denied > 0


SLOW = [
    (b"", "connection-slow"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n", "connection-slow"),
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea", "request-slow"),
]
"""The bytes that a client sends before it is silent, and the cause for closing its connection."""


REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_request_may_come_byte_by_byte(start_controller: Start) -> None:
    with opened(start_controller().url, 1) as (client,):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in REQUEST:
            client.send(bytes([byte]))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_silent_connection_does_not_delay_the_end(start_controller: Start) -> None:
    controller = start_controller()
    with opened(controller.url, 2) as (silent, asking):
        # Connections are accepted in their order, so both are when the second one is answered.
        asking.send(REQUEST)
        assert asking.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert controller.process.stop() == 0
        assert silent.recv(1) == b""


def test_who_is_slow_is_told_and_counted(start_controller: Start) -> None:
    controller = start_controller(*nobody())
    with contextlib.ExitStack() as stack:
        clients = [
            (stack.enter_context(opened(controller.url, 1, begin=begin))[0], cause)
            for begin, cause in SLOW
        ]
        for one, cause in clients:
            said = b""
            while part := one.recv(65536):
                said += part
            assert b"HTTP/1.1 408 " in said
            assert cause.encode() in said
    counts = controller.get("/v1/controller")["refusals"]
    assert (counts["connection-slow"], counts["request-slow"]) == (2, 1)


def test_an_endless_header_is_refused(start_controller: Start) -> None:
    controller = start_controller(*nobody())
    with opened(controller.url, 1, begin=b"GET / HTTP/1.1\r\nX-Long: ") as (one,):
        # It may be closed before all of it is sent.
        with contextlib.suppress(OSError):
            for _ in range(64):
                one.sendall(b"x" * 65536)
        eventually(
            lambda: controller.get("/v1/controller")["refusals"]["header-too-long"] == 1,
            "the header is refused",
        )


def test_a_handshake_that_does_not_come_to_an_end_is_closed(
    start_controller: Start, tmp_path: Path
) -> None:
    key, certificate = make_certificate(tmp_path / "tls")
    controller = start_controller(*nobody(), "--tls-cert", str(certificate), "--tls-key", str(key))
    trusted = ssl.create_default_context(cafile=str(certificate))
    with (
        opened(controller.url, 1) as (silent,),
        opened(controller.url, 1, begin=b"GET / HTTP/1.1\r\n\r\n") as (plain,),
        httpx.Client(base_url=controller.url, verify=trusted, trust_env=False) as http,
    ):
        # Closed, some with an alert of TLS before.
        while plain.recv(4096):
            pass
        while silent.recv(4096):
            pass

        def refused() -> bool:
            counts = http.get("/v1/controller").json()["refusals"]
            return bool(counts["handshake"] == 1 and counts["connection-slow"] == 1)

        eventually(refused, "both are counted")
