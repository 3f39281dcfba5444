"""`pacer trace`: the way of packets through a switch, as they come in or as a dry run."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from pacer_controller.burst import capture
from pacer_controller.cli import render
from pacer_controller.cli.connection import UsageError, path
from pacer_controller.cli.session import Session

_Event = Callable[[Mapping[str, Any]], str]


def of_capture(file: str, number: int) -> bytes:
    """Return a packet of a capture file, by its number from 1.

    Raises:
        UsageError: the file cannot be read, has fewer packets, or only the beginning of this one.

    """
    last = 0
    try:
        for last, packet in enumerate(capture.read(Path(file)), start=1):
            if last != number:
                continue
            if len(packet.data) < packet.length:
                raise UsageError(
                    f"{file}: packet {number} has {packet.length} bytes, of which "
                    f"{len(packet.data)} were captured; capture whole packets (tcpdump -s 0)"
                )
            return packet.data
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except capture.CaptureError as error:
        raise UsageError(str(error)) from None
    raise UsageError(f"{file}: no packet {number}; it has {last}")


def of_scapy(text: str) -> bytes:
    """Return the bytes of a packet in Scapy's words, such as "Ether()/IP()/TCP()".

    Raises:
        UsageError: Scapy is not installed, or this is no packet of it.

    """
    try:
        names = vars(importlib.import_module("scapy.all"))
    except ImportError:
        raise UsageError(
            "--scapy needs Scapy: apt install --no-install-recommends python3-scapy, "
            "or pip install scapy"
        ) from None
    try:
        # The user's own words, on the user's own machine.
        return bytes(eval(text, dict(names)))  # noqa: S307
    except Exception as error:  # Scapy's words may fail in any way.
        raise UsageError(f"--scapy {text!r}: {error}") from None


@click.command(name="trace")
@click.argument("switch")
@click.option("--match", metavar="FILTER", help='Only packets of a filter: "tcp dst port 80".')
@click.option("--port", type=int, metavar="N", help="Port where packets come in (dry run: 1).")
@click.option(
    "--count", type=click.IntRange(1), metavar="N", help="Packets to trace as they come in (10)."
)
@click.option("--packet", metavar="FILE", help="Dry run of a packet of a capture file.")
@click.option("--number", type=click.IntRange(1), metavar="N", help="Which packet of FILE (1).")
@click.option("--scapy", metavar="PACKET", help='Dry run of a packet: "Ether()/IP()/TCP()".')
@click.pass_obj
def trace(
    session: Session,
    switch: str,
    match: str | None,
    port: int | None,
    count: int | None,
    packet: str | None,
    number: int | None,
    scapy: str | None,
) -> None:
    """Show the way of packets through SWITCH.

    Without --packet and --scapy, this traces packets as they come in. FILTER is in the language of
    tcpdump. With one of them it is a dry run: it shows what would become of the packet now, sends
    nothing and changes nothing.
    """
    if packet is not None and scapy is not None:
        raise UsageError("both --packet and --scapy are given; give one")
    if packet is None and number is not None:
        raise UsageError("--number chooses a packet of a capture file; give --packet FILE")
    if packet is None and scapy is None:
        _watch(session, switch, match, port, count or 10)
        return
    for option, value in (("--match", match), ("--count", count)):
        if value is not None:
            raise UsageError(f"{option} is for packets that come in, not for --packet and --scapy")
    frame = of_capture(packet, number or 1) if packet is not None else of_scapy(str(scapy))
    body = {"port": 1 if port is None else port, "frame": frame.hex()}
    answer = session.connection.request("POST", path("switches", switch, "dry-run"), body=body)
    _print(session, answer.json())


def _watch(session: Session, switch: str, match: str | None, port: int | None, count: int) -> None:
    query: dict[str, str | int] = {"count": count}
    if match is not None:
        query["match"] = match
    if port is not None:
        query["port"] = port
    with session.connection.stream(path("switches", switch, "traces"), query) as stream:
        for kind, view in stream:
            if kind == "error":
                raise UsageError(str(view.get("detail") or view.get("title")))
            _print(session, view)


def _print(session: Session, view: Mapping[str, Any]) -> None:
    if session.as_json:
        session.print_line(dict(view))
    else:
        if view.get("skipped"):
            render.console().print(f"({view['skipped']} packets skipped: too many to trace)")
        render.console().print(tree(view["trace"]))
    sys.stdout.flush()


def tree(trace: Mapping[str, Any]) -> Tree:
    """Return a trace (`packet_trace.proto` as JSON) as a tree."""
    came = trace.get("input", {})
    top = Tree(
        Text(
            f"packet {came.get('packet_id', 0)}: {came.get('packet_size', 0)} bytes at port "
            f"{came.get('ingress_port', 0)}, at {came.get('arrival_ns', 0)} ns",
            style="bold",
        )
    )
    _branch(top, trace.get("root", {}))
    if trace.get("left_out"):
        top.add(Text(f"{trace['left_out']} events are left out"))
    return top


def _branch(top: Tree, branch: Mapping[str, Any]) -> None:
    inner = top
    for event in branch.get("events", ()):
        kind, members = next(iter(event.items()))
        if kind == "pipeline_stage":
            name = members.get("stage_name", "")
            inner = top.add(Text(name)) if members.get("direction") == "ENTER" else top
            continue
        words = _EVENTS.get(kind)
        if words is not None:
            inner.add(Text(words(members)))
    for kind, members in branch.items():
        if kind in _OUTCOMES:
            top.add(Text(_OUTCOMES[kind](members), style="bold"))
    fork = branch.get("fork")
    if fork is not None:
        why = "cloned" if fork.get("reason") == "CLONE" else "sent to a multicast group"
        for number, one in enumerate(fork.get("branches", ())):
            title = f"{why}: the packet itself" if number == 0 else f"copy {number}"
            _branch(top.add(Text(title, style="bold")), one)


def _pairs(values: Any) -> str:
    return ", ".join(f"{one['name']} {one.get('value', '')}" for one in values or ())


def _table(members: Mapping[str, Any]) -> str:
    if not members.get("hit"):
        found = "miss"
    elif "handle" in members:
        found = f"hit, entry {members['handle']}"
    else:
        found = "hit"
    key = _pairs(members.get("key"))
    return f"table {members.get('table', '')}: {found}{f' ({key})' if key else ''}"


def _cell(word: str) -> _Event:
    def words(members: Mapping[str, Any]) -> str:
        array = members.get("register") or members.get("counter") or members.get("meter") or ""
        value = members.get("value", _colour(members))
        said = "" if value is None else f" = {value}"
        return f"{word} {array}[{members.get('index', 0)}]{said}"

    return words


def _colour(members: Mapping[str, Any]) -> str | None:
    colour = members.get("colour")
    return None if colour is None else _COLOURS.get(colour, str(colour))


def _place(members: Mapping[str, Any]) -> str:
    """Return what the text of the program says there, and where that is; "" if p4c does not say."""
    source = members.get("source_info")
    if source is None:
        return ""
    text = source.get("source_fragment", "")
    return f"{text} ({source.get('filename', '')}:{source.get('line', 0)})"


def _condition(members: Mapping[str, Any]) -> str:
    words = [members.get("name", ""), _place(members)]
    holds = "true" if members.get("holds") else "false"
    return f"{' '.join(filter(None, words))}: {holds}"


def _member(members: Mapping[str, Any]) -> str:
    if "one_shot_index" in members:
        chosen = f"action {members['one_shot_index']} of the entry's one-shot set"
    else:
        chosen = f"member {members.get('member_id', 0)}"
    group = f" of group {members['group_id']}" if "group_id" in members else ""
    return f"chooses {chosen}{group} ({members.get('action_profile', '')})"


def _reading(members: Mapping[str, Any]) -> str:
    queue = f"queue {members.get('queue', 0)} of port {members.get('port', 0)}"
    if not members.get("exists"):
        return f"reads {queue}, which does not exist"
    return (
        f"reads {queue}: {members.get('packets', 0)} packets, {members.get('bytes', 0)} bytes, "
        f"{_time(members, 'sojourn_ns')} at its head"
    )


def _enqueue(members: Mapping[str, Any]) -> str:
    hold = members.get("hold")
    place = f"queue {members.get('qid', 0)}" if hold is None else f"class {hold.get('class_id', 0)}"
    return (
        f"{place} of port {members.get('port', 0)} at {_time(members, 'at_ns')}, "
        f"behind {members.get('enq_qdepth', 0)} packets; "
        f"{members.get('backlog_bytes', 0)} bytes wait"
    )


def _dequeue(members: Mapping[str, Any]) -> str:
    gap = f", after a gap of {_time(members, 'gap_ns')}" if "gap_ns" in members else ""
    return f"leaves the queue of port {members.get('port', 0)} at {_time(members, 'start_ns')}{gap}"


def _time(members: Mapping[str, Any], name: str) -> str:
    return f"{members.get(name, 0)} ns"


_COLOURS = {0: "green", 1: "yellow", 2: "red"}

_EVENTS: dict[str, _Event] = {
    "parser_state": lambda m: f"state {m.get('name', '')}",
    "extract": lambda m: (
        f"{m.get('header', '')} ({m.get('bytes', 0)} bytes): {_pairs(m.get('fields'))}"
    ),
    "parser_error": lambda m: f"parser error {m.get('name', '')}",
    "checksum_error": lambda _: "wrong checksum",
    "condition": _condition,
    "table_lookup": _table,
    "direct_meter": lambda m: f"meter {m.get('meter', '')} = {_colour(m)}",
    "chosen_member": _member,
    "empty_group": lambda _: "the group has no member whose port is up",
    "action": lambda m: f"action {m.get('name', '')}({_pairs(m.get('args'))})",
    "primitive": lambda m: _place(m) or m.get("op", ""),
    "register_read": _cell("read"),
    "register_write": _cell("write"),
    "count": _cell("count"),
    "meter": _cell("meter"),
    "read_queue": _reading,
    "choose_queue": lambda m: f"choose queue {m.get('queue', 0)}",
    "mark_to_drop": lambda _: "mark to drop",
    "hold": lambda m: f"hold in class {m.get('class_id', 0)} until {_time(m, 'departure_ns')}",
    "truncate": lambda m: f"cut to {m.get('bytes', 0)} bytes",
    "clone": lambda m: f"clone to session {m.get('session', 0)}",
    "digest": lambda _: "digest",
    "resubmit": lambda _: "resubmit",
    "recirculate": lambda _: "recirculate",
    "exit": lambda _: "exit",
    "assert_failed": lambda _: "an assert or assume fails",
    "emit": lambda m: f"emit {m.get('header', '')} ({m.get('bytes', 0)} bytes)",
    "enqueue": _enqueue,
    "dequeue": _dequeue,
    "ecn_mark": lambda _: "the queue marks it: congestion experienced (CE)",
    "reenter": lambda m: f"enters ingress again at {_time(m, 'at_ns')}",
}

_OUTCOMES: dict[str, _Event] = {
    "transmit": lambda m: (
        f"leaves by port {m.get('egress_port', 0)}: {m.get('packet_size', 0)} bytes at "
        f"{_time(m, 'delivery_ns')}"
    ),
    "packet_in": lambda m: f"goes to the controller: {m.get('packet_size', 0)} bytes",
    "drop": lambda m: f"dropped: {m.get('cause', '')}, counted at port {m.get('port', 0)}",
    "unfinished": lambda _: "the trace ends here; the packet is in the switch",
}
