"""The resources as the command knows them: words, paths, and writable fields."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pacer_controller import rates
from pacer_controller.cli.connection import UsageError, path
from pacer_controller.cli.words import (
    Grammar,
    Word,
    nested,
    read_allowance,
    read_number_or_text,
    read_range,
    read_rate,
    read_size,
    read_switch,
    read_time_ns,
    read_whole,
)
from pacer_controller.modes import MODES, MODES_OF_SETTING

_RATE = ("RATE", "8kbit to 100Gbit: 500mbit, 62.5MB/s")


def _text(text: str) -> str:
    if not text:
        raise ValueError("what follows it is empty")
    return text


def _stations(text: str) -> dict[str, int]:
    found = {}
    for part in text.split(","):
        address, separator, port = part.partition("=")
        if not separator:
            raise ValueError(f"{part!r} is not MAC=PORT")
        found[address] = read_whole(port)
    return found


_LIMITS = (
    Word("limit", "limit_bytes", read_size, "SIZE", "longest queue; further packets are dropped"),
    Word(
        *("allowance", "allowance_ns", read_allowance, "TIME|auto|exact"),
        "lost time that it may catch up after a stall (auto: 16 KB of packets; exact: one packet)",
        choices=("auto", "exact"),
    ),
)

_FOLLOW = (
    Word(
        *("follow", "follow.switch", _text, "SWITCH"),
        "switch whose bottleneck the rate follows; none: no longer",
        choices=("<switch>",),
    ),
    Word(
        "follow-port",
        "follow.port",
        read_whole,
        "N",
        "wired port of it by which the packets come in",
    ),
    Word("follow-fifo", "follow.fifo_bytes", read_size, "SIZE", "FIFO of the bottleneck"),
    Word("least", "follow.least_rate", read_rate, _RATE[0], "lowest rate of a class that follows"),
    Word("most", "follow.most_rate", read_rate, _RATE[0], "highest rate of a class that follows"),
)

CLASS = Grammar(
    "class",
    (
        Word("rate", "rate", read_rate, *_RATE),
        Word("mode", "mode", _text, "MODE", ", ".join(MODES), choices=MODES),
        *(Word(mode, "mode", None, "", f"mode {mode}", value=mode) for mode in MODES[:2]),
        *_LIMITS,
        Word("ecn", "ecn_threshold_bytes", read_size, "SIZE", "mark CE above this queue length"),
        Word("gap", "gap_bytes", read_size, "SIZE", "gap between packets (mode ipg)"),
        Word("hz", "tick_hz", read_whole, "N", "ticks a second (mode timer, default 1000)"),
        Word(
            *("headroom", "headroom_percent", read_whole, "PERCENT"),
            "rate as a share of window/RTT (dynamic, slow-start)",
        ),
        Word(
            *("threshold", "threshold_ns", read_time_ns, "TIME"),
            "RTT per packet of the window below which pacing ends (slow-start, clustered)",
        ),
        Word(
            *("quantum", "quantum_bytes", read_size, "SIZE"),
            "packets of so many bytes leave together; none: each by itself (mode static)",
        ),
        Word(
            *("slots", "slots", read_whole, "N"),
            "slots of a cycle, in which packets leave once; none: at any time "
            "(static, pspd, dynamic)",
        ),
        Word("slot-time", "slot_ns", read_time_ns, "TIME", "time of a slot"),
        Word("slot", "slot", read_whole, "N", "slot of the class, from 1 on (mode static)"),
        Word(
            *("window-margin", "window_margin_bytes", read_size, "SIZE"),
            "lower TCP receive windows to rate x RTT plus SIZE",
        ),
        Word(
            *("port", "port", read_whole, "N"),
            "only port that its packets leave by",
            choices=("<port>",),
        ),
        *_FOLLOW,
    ),
)

_METER_WORDS = (
    ("cir", read_rate, _RATE, "committed rate; above it packets are yellow"),
    ("pir", read_rate, _RATE, "peak rate; above it packets are red"),
    ("cburst", read_size, ("SIZE",), "committed burst"),
    ("pburst", read_size, ("SIZE",), "peak burst"),
    ("drop-red", read_switch, ("yes|no",), "whether red packets are dropped"),
    ("yellow-dscp", read_whole, ("0-63",), "DSCP that yellow packets get"),
    ("red-dscp", read_whole, ("0-63",), "DSCP that red packets get"),
)


def _meter_words(below: str) -> tuple[Word, ...]:
    return tuple(
        Word(name, below + name.replace("-", "_"), read, shown[0], text)
        for name, read, shown, text in _METER_WORDS
    )


METER = Grammar("meter", _meter_words(""))

_PROTOCOLS = ("tcp", "udp", "icmp", "icmpv6")
_ETHER_TYPES = {"ip": "ipv4", "ipv4": "ipv4", "ipv6": "ipv6", "arp": "arp"}

MATCH = (
    *(Word(p, "match.protocol", None, "", f"IP protocol {p}", value=p) for p in _PROTOCOLS),
    *(
        Word(name, "match.ether_type", None, "", f"EtherType {name}", value=value)
        for name, value in _ETHER_TYPES.items()
    ),
    Word("src", "match.src", _text, "PREFIX", "source, IPv4 or IPv6"),
    Word("dst", "match.dst", _text, "PREFIX", "destination, IPv4 or IPv6"),
    Word("sport", "match.src_port", read_range, "PORT", "source port, or a range 5000-5999"),
    Word("dport", "match.dst_port", read_range, "PORT", "destination port, or a range"),
    Word("dscp", "match.dscp", read_whole, "0-63", "DSCP"),
    Word("vlan", "match.vlan", read_whole, "ID", "VLAN id; 0: untagged"),
    Word("proto", "match.protocol", read_number_or_text, "P", "IP protocol", also=("protocol",)),
    Word("ethertype", "match.ether_type", read_number_or_text, "E", "ipv4, 0x0800"),
    Word("in", "match.ingress_port", read_whole, "N", "ingress port", choices=("<port>",)),
)

FLOW = Grammar(
    "flow",
    (
        *MATCH,
        Word("class", "class", _text, "CLASS", "class of its packets", choices=("<class>",)),
        Word("rate", "rate", read_rate, _RATE[0], "rate of its own, instead of a class"),
        Word("meter", "meter", _text, "METER", "meter in front of the class", choices=("<meter>",)),
        Word(
            *("priority", "priority", read_whole, "N"),
            "the highest that matches wins (default 1000)",
            also=("prio",),
        ),
        Word("set-dscp", "set_dscp", read_whole, "0-63", "DSCP its packets get"),
        Word("name", "name", _text, "NAME", "name (default: made from the match)"),
        *_LIMITS,
        *_meter_words("meter."),
    ),
    noise=("match",),
)

PORT_DEFAULTS: Mapping[str, str | int] = {
    "line_rate": "none",
    "counts": "wire",
    "fifo_bytes": 1_518_000,
    "delay_ns": 0,
    "gap_mode": "accounted",
    "egress_queues": "none",
}
"""Settings of a port of pacing_switch that was started without any."""

PORT = Grammar(
    "port",
    (
        Word("rate", "line_rate", read_rate, "RATE|none", "line rate", none="none"),
        Word(
            *("counts", "counts", _text, "WHAT", "layer2 or wire"),
            choices=("layer2", "wire"),
            none=PORT_DEFAULTS["counts"],
        ),
        Word(
            *("fifo", "fifo_bytes", read_size, "SIZE|none"),
            "FIFO of unpaced packets, at least 1518 bytes",
            none=PORT_DEFAULTS["fifo_bytes"],
        ),
        Word(
            *("delay", "delay_ns", read_time_ns, "TIME|none", "propagation delay"),
            none=PORT_DEFAULTS["delay_ns"],
        ),
        Word(
            *("gaps", "gap_mode", _text, "MODE|none", "accounted or pause-frames"),
            choices=("accounted", "pause-frames"),
            none=PORT_DEFAULTS["gap_mode"],
        ),
        Word(
            *("gap-frame", "gap_frame_max_bytes", read_size, "SIZE|none"),
            help="longest PAUSE frame, 60 to 9216 bytes",
        ),
    ),
)

SWITCH = Grammar(
    "switch",
    (
        Word("address", "address", _text, "HOST:PORT", "P4Runtime server; tls:HOST:PORT"),
        Word("device-id", "device_id", read_whole, "N", "P4Runtime device"),
        Word(
            *("target", "target", _text, "NAME", "pacing_switch or bmv2"),
            choices=("pacing_switch", "bmv2"),
        ),
        Word(
            *("program", "program", _text, "NAME", "pacer or gtrcnet"), choices=("pacer", "gtrcnet")
        ),
        Word("cpu-port", "cpu_port", read_whole, "N", "CPU port (default 510)"),
        Word("ports", "ports", _text, "1-4", "port numbers, if the switch cannot list them"),
        Word(
            "wire",
            "wire",
            lambda text: text.split(","),
            "A:B",
            "pairs of ports that gtrcnet connects",
        ),
        Word("bottleneck", "bottleneck", read_rate, "RATE", "gtrcnet's virtual bottleneck"),
        Word("stations", "stations", _stations, "MAC=N", "stations with a fixed port"),
        Word("ovsdb", "ovsdb", _text, "WHERE", "Open vSwitch: unix:PATH or tcp:HOST:PORT"),
        Word("bridge", "bridge", _text, "NAME", "Open vSwitch: bridge"),
        Word("openflow", "openflow", _text, "WHERE", "Open vSwitch: unix:PATH, tcp:H:P"),
        Word(
            *("qos-type", "qos_type", _text, "TYPE", "Open vSwitch: auto, linux-htb, pacer"),
            choices=("auto", "linux-htb", "pacer"),
        ),
    ),
)


def default_bursts(view: Mapping[str, Any]) -> set[str]:
    """Return which bursts of a meter are the defaults for its rates."""
    cir = rates.parse_rate(view["cir"])
    pir = rates.parse_rate(view["pir"]) if view.get("pir") else cir
    cburst = max(10 * 1522, rates.bytes_per_second(cir) // 100)
    found = set()
    if view.get("cburst") == cburst:
        found.add("cburst")
        if view.get("pburst") == max(cburst, rates.bytes_per_second(pir) // 100):
            found.add("pburst")
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of resource.

    Attributes:
        name: its name.
        plural: the name of a list of it, also in its path.
        help: the purpose of the commands on it.
        grammar: the words that set its fields.
        no_words: fields that PUT takes and no word sets.
        defaults: fields of what GET answers that hold only their defaults, which PUT leaves out.

    """

    name: str
    plural: str
    help: str
    grammar: Grammar
    no_words: tuple[str, ...] = ()
    defaults: Callable[[Mapping[str, Any]], set[str]] = lambda _: set()

    @property
    def writable(self) -> list[str]:
        """The fields that PUT takes; a flow's name is a word, and part of the path."""
        fields = (word.field.partition(".")[0] for word in self.grammar.words)
        return list(dict.fromkeys(field for field in (*self.no_words, *fields) if field != "name"))

    def spec(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """Make what PUT takes of what GET answers."""
        if self.name == "port":
            return dict(view.get("desired") or {})
        left_out = self.defaults(view)
        body = {n: view[n] for n in self.writable if n not in left_out and view.get(n) is not None}
        if view.get("allowance") in ("auto", "exact"):
            # It follows the rate.
            body["allowance_ns"] = view["allowance"]
        if self.name == "flow" and view.get("meter_name"):
            body["meter"] = view["meter_name"]
        elif self.name == "flow" and isinstance(view.get("meter"), dict):
            body["meter"] = KINDS["meter"].spec(view["meter"])
        return body

    def path(self, switch: str, *rest: str) -> str:
        """Return the path of one resource, or of the list of them on a switch.

        Raises:
            UsageError: a name is empty, or a port's is not a number.

        """
        if self.name == "switch":
            return path("switches", switch)
        if self.name == "port":
            for number in rest:
                if number and not re.fullmatch(r"[0-9]+", number, re.ASCII):
                    raise UsageError(
                        f"{number!r} is no port's number; `pacer port show {switch}` has "
                        "the numbers"
                    )
        return path("switches", switch, self.plural, *rest)


_PACE = ("limit_bytes", "allowance_ns")

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            *("switch", "switches", "Switches: add, set, del, show.", SWITCH),
            no_words=("kind", "measured"),
        ),
        Kind(
            *("port", "ports", "Ports: line rate, FIFO, delay, counting, gap mode.", PORT),
            no_words=("egress_queues",),
        ),
        Kind(
            *("class", "classes", "Classes: how packets are spaced.", CLASS),
        ),
        Kind(
            *("meter", "meters", "Meters: committed and peak rates.", METER),
            defaults=default_bursts,
        ),
        Kind(
            *("flow", "flows", "Flows: which packets, and which class or rate they get.", FLOW),
        ),
    )
}


def body_of(kind: Kind, fields: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a PUT: the former settings with the fields changed.

    Raises:
        UsageError: fields that contradict one another.

    """
    fields = dict(fields)
    start = dict(before)
    if kind.name == "flow":
        _agree(fields, start)
    if kind.name == "class" and "mode" in fields:
        for name, modes in MODES_OF_SETTING.items():
            if fields["mode"] not in modes:
                if fields["mode"] in MODES and fields.get(name) is not None:
                    word = next(word.name for word in CLASS.words if word.field == name)
                    raise UsageError(f"mode {fields['mode']} takes no {word}")
                start.pop(name, None)
    if kind.name == "class" and fields.get("follow.switch", "") is None:
        fields = {name: value for name, value in fields.items() if not name.startswith("follow.")}
        start.pop("follow", None)
    if kind.name == "class" and fields.get("slots", 0) is None:
        for name in ("slot_ns", "slot"):
            start.pop(name, None)
    if kind.name == "port" and fields.get("gap_mode", "pause-frames") != "pause-frames":
        # Only PAUSE frames have a length.
        start.pop("gap_frame_max_bytes", None)
    if kind.name == "class" and fields.get("rate") and "mode" not in fields:
        # A rate without a mode makes an unpaced class a static one.
        start = {n: v for n, v in start.items() if (n, v) != ("mode", "unpaced")}
    if kind.name == "switch":
        start.setdefault("kind", "openvswitch" if "ovsdb" in fields else "p4runtime")
    return nested(fields, start)


def _agree(fields: Mapping[str, Any], start: dict[str, Any]) -> None:
    """Remove the former fields of a flow that the new ones replace."""
    in_place = any(name.startswith("meter.") for name in fields)
    if fields.get("meter") is not None and in_place:
        raise UsageError("a flow names a meter, or has one of its own: not both")
    if fields.get("class") is not None:
        if fields.get("rate") is not None:
            raise UsageError("a flow joins a class, or has a rate of its own: not both")
        for name in ("rate", *_PACE):
            start.pop(name, None)
    elif fields.get("rate") is not None:
        start.pop("class", None)


def flow_name(match: Mapping[str, Any], priority: int | None) -> str:
    """Make a flow's name from its match: `tcp-dport-80`."""
    shown = {"src_port": "sport", "dst_port": "dport", "ingress_port": "in", "ether_type": None}
    parts = [str(match["protocol"])] if "protocol" in match else []
    for name, value in match.items():
        if name == "protocol":
            continue
        label = shown.get(name, name)
        parts += [label] if label else []
        parts.append(str(value))
    if priority is not None:
        parts += ["priority", str(priority)]
    text = "-".join(parts).translate({ord(":"): "_", ord("/"): "-"})
    return text[:64]
