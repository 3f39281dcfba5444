"""The controllers whose changes each switch accepted, as the switch itself lists them, in order.

A controller cannot tell whether another one writes, too. The switch can: `ListWriters` of
`pacer.v1.TrafficManager` has a span for each row of changes from one controller with one election
id.
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from pacer_controller.switch_services import messages

from cluster import GRPC, Node
from tables import READ_S, channel

LOOK_S = 0.5
"""Time between two looks at a switch. Changes since the last look are not seen if it is killed."""


@dataclass(frozen=True)
class Span:
    """Changes that a switch accepted one after another from one controller.

    Attributes:
        life: the process of the switch.
        number: the number that the switch gives it, from 0 in each life.
        role: the P4Runtime role of the controller.
        election_id: the election id with which it was primary.
        address: the IP address of its host.

    """

    life: int
    number: int
    role: str
    election_id: int
    address: str


def wrong(spans: Sequence[Span]) -> list[str]:
    """Return how the spans of a switch differ from those of one writer at a time.

    In each role, election ids must not decrease, not even after a restart of the switch, since a
    lease has a higher number than all leases before it. An election id must be of one controller.
    No span may be missing.
    """
    found = []
    for one, following in itertools.pairwise(spans):
        if one.life == following.life and following.number != one.number + 1:
            found.append(f"spans {one.number + 1} to {following.number - 1} were not seen")
    highest: dict[str, Span] = {}
    for one in spans:
        before = highest.setdefault(one.role, one)
        if one.election_id < before.election_id:
            found.append(
                f"{one.address} wrote with election id {one.election_id} after {before.address} "
                f"with {before.election_id}"
            )
            continue
        if one.election_id == before.election_id and one.address != before.address:
            found.append(f"{before.address} and {one.address} wrote as {one.election_id}")
        highest[one.role] = one
    return found


class Watch:
    """Looks at the spans of running switches until it is closed.

    Args:
        switches: the switches, which have been started.

    """

    def __init__(self, switches: Sequence[Node]) -> None:
        self.spans: dict[str, list[Span]] = {switch.name: [] for switch in switches}
        """The spans that were seen, by the name of the switch, in order."""
        self._stop = threading.Event()
        self._request = messages()["ListWritersRequest"]
        self._response = messages()["ListWritersResponse"]
        self._threads = [
            threading.Thread(target=self._run, args=(one,), daemon=True) for one in switches
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Look a last time, and end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wrong(self) -> list[str]:
        """Return what was wrong at any switch."""
        return [
            f"{name}: {text}" for name, spans in sorted(self.spans.items()) for text in wrong(spans)
        ]

    def _run(self, switch: Node) -> None:
        with channel(f"{switch.host.address}:{GRPC}") as opened:
            while not self._stop.wait(LOOK_S):
                self._look(switch, opened)
            self._look(switch, opened)

    def _look(self, switch: Node, opened: grpc.Channel) -> None:
        life = _life(switch)
        if life is None:
            return
        method = opened.unary_unary(
            "/pacer.v1.TrafficManager/ListWriters",
            request_serializer=self._request.SerializeToString,
            response_deserializer=self._response.FromString,
        )
        try:
            answer = method(self._request(), timeout=READ_S)
        except grpc.RpcError:
            return
        if _life(switch) != life:
            return
        spans = self.spans[switch.name]
        known = max((one.number for one in spans if one.life == life), default=-1)
        for one in answer.writers:
            if one.number > known:
                election_id = (one.election_id.high << 64) + one.election_id.low
                spans.append(Span(life, one.number, one.role, election_id, one.address))


def _life(switch: Node) -> int | None:
    """Return the process of a switch; None: it does not run."""
    process = switch.process
    return process.pid if process is not None and process.poll() is None else None
