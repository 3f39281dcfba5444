"""A network between nodes: connections that deliver in order, late, stalled, or not at all.

Connections are TCP's: messages arrive in order and once, or the connection breaks. A link that is
cut in one direction holds up the messages in that direction; they arrive after the link is mended,
unless an end has closed the connection. A node that is off answers nothing; one whose program has
ended answers with a reset, as its kernel does.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loop import PROCESS, Node, Process, SimulatedLoop

SYN_S = (0.0, 1.0, 3.0, 7.0, 15.0)
"""Times at which an unanswered request for a connection is sent, in seconds from the first."""

RETRANSMIT_S = 0.6
"""Longest time from a link's repair until the messages that it held up go through."""


class Endpoint:
    """One end of a connection.

    Args:
        network: the network that it goes through.
        process: the process that owns it.
        peer: name of the node at the other end.

    Attributes:
        received: called in the process with each message.
        broken: called in the process, once, when the connection ends from outside.
        keepalive: time without a sign of life until the other end is asked for one, and the time
            that it has to answer, in seconds; None: it is never asked.

    """

    def __init__(self, network: "Network", process: Process, peer: Node) -> None:
        self._network = network
        self.process = process
        self.peer = peer
        self.received: Callable[[Any], None] = lambda _: None
        self.broken: Callable[[str], None] = lambda _: None
        self.keepalive: tuple[float, float] | None = None
        self.other: Endpoint | None = None
        self.open = True
        self.link = network.link(process.node, peer)
        """The way of what it sends."""
        self._last_s = 0.0
        self._held: deque[tuple[str, Any]] = deque()

    def send(self, message: Any) -> None:
        """Send a message; nothing happens if the connection has ended."""
        if self.open:
            self._network.transmit(self, "data", message)

    def close(self, reason: str = "closed by peer") -> None:
        """End the connection; the other end learns of it after all earlier messages."""
        if self.open:
            self.open = False
            self._network.transmit(self, "end", reason)
            self._network.forget(self)

    def take(self, message: Any) -> None:
        """Pass on a message that has arrived, to the receiver of this moment.

        A message can arrive before the process has run what accepts its connection.
        """
        self.received(message)

    def ended(self, reason: str) -> None:
        """Tell the receiver of this moment that the connection has ended from outside."""
        self.broken(reason)

    def lose(self, reason: str) -> None:
        """End this end as if the connection had broken, and tell its owner."""
        if self.open:
            self.close(reason)
            self.process.post(self.ended, reason)


Accept = Callable[[Endpoint], None]


@dataclass
class Link:
    """One direction between two nodes."""

    cut: int = 0
    slow_s: float = 0.0
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Network:
    """The network.

    Args:
        loop: the simulation.
        seed: the seed of delays.

    Attributes:
        traps: called with the sending end and the message when a program has sent data.

    """

    def __init__(self, loop: SimulatedLoop, seed: str) -> None:
        self.traps: list[Callable[[Endpoint, Any], None]] = []
        self._loop = loop
        self._chance = random.Random(f"{seed}/network")
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, tuple[Process, Accept]] = {}
        self._ends: dict[Endpoint, None] = {}
        self.messages = 0
        self.mean_s = self._chance.choice((0.0002, 0.001, 0.004))
        self._healed_s: dict[tuple[str, str], float] = {}

    # ---- links ----

    def link(self, source: Node, to: Node) -> Link:
        """Return the way from one node to another."""
        names = (source.name, to.name)
        found = self._links.get(names)
        if found is None:
            found = self._links[names] = Link()
        return found

    def cut(self, source: Node, to: Node) -> None:
        """Let nothing through from one node to another; once more for each call."""
        self.link(source, to).cut += 1
        self._suspect()

    def mend(self, source: Node, to: Node) -> None:
        """Take one `cut` back."""
        link = self.link(source, to)
        link.cut -= 1
        if link.cut == 0:
            waiting, link.waiting = link.waiting, []
            for call in waiting:
                call()

    def is_cut(self, source: Node, to: Node) -> bool:
        """Whether nothing gets through from one node to another."""
        return self.link(source, to).cut > 0

    def slow(self, source: Node, to: Node, by_s: float) -> None:
        """Set an additional delay from one node to another, in seconds; 0: none."""
        self.link(source, to).slow_s = by_s

    def delay(self, source: Node, to: Node) -> float:
        """Draw how long a message takes."""
        return self._delay(self.link(source, to))

    def _delay(self, link: Link) -> float:
        return self._chance.expovariate(1 / self.mean_s) + link.slow_s + 5e-5

    # ---- connections ----

    def listen(self, process: Process, port: int, accept: Accept) -> None:
        """Take connections at a port of the process's node, while the process lives."""
        address = f"{process.node.name}:{port}"
        self._listeners[address] = (process, accept)

        process.at_end.append(lambda: self.refuse(process, port))

    def refuse(self, process: Process, port: int) -> None:
        """Take no more connections at a port of the process's node."""
        address = f"{process.node.name}:{port}"
        if self._listeners.get(address, (None,))[0] is process:
            del self._listeners[address]

    def connect(
        self,
        address: str,
        opened: Callable[[Endpoint], None],
        failed: Callable[[str], None],
    ) -> None:
        """Ask for a connection; the asking process is told of the outcome."""
        process = PROCESS.get()
        peer = self._loop.node(address.rpartition(":")[0])
        begun_s = self._loop.now_s
        done = False

        def syn(again: int) -> None:
            if done or not process.alive:
                return
            if again + 1 < len(SYN_S):
                self._loop.at(begun_s + SYN_S[again + 1], syn, again + 1)
            else:
                self._loop.at(begun_s + 2 * SYN_S[-1], answer, "timed out", None)
            if not self.is_cut(process.node, peer):
                self._loop.after(self.delay(process.node, peer), arrive)

        def arrive() -> None:
            if not peer.powered or self.is_cut(peer, process.node) or done:
                return
            listening = self._listeners.get(address)
            back_s = self.delay(peer, process.node)
            if listening is None:
                self._loop.after(back_s, answer, "connection refused", None)
                return
            there = Endpoint(self, listening[0], process.node)
            here = Endpoint(self, process, peer)
            there.other, here.other = here, there
            # Nothing is delivered before the connection is there.
            there._last_s = self._loop.now_s + back_s
            self._add(there)
            listening[0].post(listening[1], there)
            self._loop.after(back_s, answer, "", here)

        def answer(reason: str, here: Endpoint | None) -> None:
            nonlocal done
            if done:
                if here is not None:
                    here.close("not wanted")
                return
            done = True
            if here is None:
                process.post(failed, reason)
                return
            if not process.alive:
                here.close("reset by peer")
                return
            self._add(here)
            process.post(opened, here)

        syn(0)

    def _add(self, end: Endpoint) -> None:
        self._ends[end] = None
        end.process.at_end.append(lambda: self._ended(end))

    def forget(self, end: Endpoint) -> None:
        """Drop an end that is closed."""
        self._ends.pop(end, None)

    def _ended(self, end: Endpoint) -> None:
        """Close the connections that a process has left open; a node that is off does not."""
        if end.open and end.process.node.powered:
            end.close("reset by peer")
        end.open = False
        self.forget(end)

    def transmit(self, source: Endpoint, kind: str, message: Any) -> None:
        """Send from one end to the other, behind all earlier messages."""
        self.messages += 1
        when_s = max(source._last_s, self._loop.now_s + self._delay(source.link))
        source._last_s = when_s
        source._held.append((kind, message))
        self._loop.at(when_s, self._arrive, source)
        if kind == "data":
            for trap in list(self.traps):
                trap(source, message)

    def _arrive(self, source: Endpoint) -> None:
        other = source.other
        assert other is not None
        if not source._held:
            return
        link = source.link
        if link.cut:
            # Sent again by the kernel until it gets through.
            late_s = self._chance.random() * RETRANSMIT_S
            link.waiting.append(lambda: self._loop.after(late_s, self._drain, source))
            return
        self._deliver(source, other)

    def _drain(self, source: Endpoint) -> None:
        """Deliver all messages that a cut has held up; later messages come at their own times."""
        source._last_s = max(source._last_s, self._loop.now_s)
        self._arrive(source)

    def _deliver(self, source: Endpoint, other: Endpoint) -> None:
        kind, message = source._held.popleft()
        node = other.process.node
        if not node.powered:
            return
        if not other.process.alive or not other.open:
            # The kernel says that there is no such connection.
            if source.open and kind == "data":
                self._loop.after(self.delay(node, source.process.node), self._reset, source)
            return
        if kind == "end":
            other.open = False
            self.forget(other)
            other.process.post(other.ended, str(message))
        else:
            if isinstance(message, tuple) and isinstance(message[-1], bytes):
                self._loop.mark(message[-1])
            other.process.post(other.take, message)

    def _reset(self, end: Endpoint) -> None:
        if not end.open or not end.process.alive:
            return
        if end.other is not None and self.is_cut(end.peer, end.process.node):
            self.link(end.peer, end.process.node).waiting.append(lambda: self._reset(end))
            return
        end.lose("reset by peer")

    def reset(self, one: Node, two: Node) -> int:
        """Break all connections between two nodes; returns how many."""
        broken = [
            end
            for end in list(self._ends)
            if end.open and end.process.node is one and end.peer is two
        ]
        for end in broken:
            end.lose("reset by peer")
        return len(broken)

    # ---- keepalives ----

    def _troubled(self, end: Endpoint) -> bool:
        here, peer = end.process.node, end.peer
        there = end.other.process if end.other is not None else None
        return (
            self.is_cut(here, peer)
            or self.is_cut(peer, here)
            or not peer.powered
            or peer.paused
            or there is None
            or not there.alive
        )

    def _suspect(self) -> None:
        """Let each end without an answer notice it, at the time of its keepalive."""
        for end in list(self._ends):
            if end.keepalive is not None and end.open and self._troubled(end):
                every_s, answer_s = end.keepalive
                probe_s = self._chance.random() * every_s
                self._loop.after(probe_s, self._probe, end, answer_s)

    def suspect(self) -> None:
        """Look for ends without an answer, because a node was paused or is off."""
        self._suspect()

    def _probe(self, end: Endpoint, left_s: float) -> None:
        """Give up an end that has had no answer for its timeout."""
        if not end.open or not end.process.alive or not self._troubled(end):
            return
        if left_s <= 0:
            end.lose("keepalive watchdog timeout")
            return
        step_s = min(0.1, left_s)
        self._loop.after(step_s, self._probe, end, left_s - step_s)
