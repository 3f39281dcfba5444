"""Renders resources in a terminal. Names and texts come from others, so none of it is markup."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pacer_controller.rates import format_rate

STATE_STYLES = {
    "connected": "green",
    "applied": "green",
    "pending": "yellow",
    "backup": "cyan",
    "failed": "bold red",
    "unreachable": "bold red",
}

View = Mapping[str, Any]
"""A resource, or the measurements of one, as the controller answers it."""

_Cell = Callable[[View], object]
"""Makes a cell of a table's column."""

PIPE_WIDTH = 10_000
"""Width where no terminal shows it: lines are for other programs, and never broken."""


def console(stderr: bool = False) -> Console:
    """Return a console on standard output, or error."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def size(count: int | None) -> str:
    """Return bytes with a unit (KB = 1024), exactly where that is short."""
    if count is None:
        return "-"
    for unit, scale in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}" if count % scale else f"{count // scale}{unit}"
    return f"{count}B"


def exact_size(count: int) -> str:
    """Return bytes as they may be typed: with a unit where that is exact."""
    for unit, scale in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if count and count % scale == 0:
            return f"{count // scale}{unit}"
    return f"{count}B"


def time(ns: float | None) -> str:
    """Return a time with a unit."""
    if ns is None:
        return "-"
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            return f"{ns / scale:.4g}{unit}"
    return f"{ns:.4g}ns"


def rate(bps: float | None) -> str:
    """Return a measured rate, to three digits."""
    if bps is None:
        return "-"
    for unit, scale in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3)):
        # 999.7 kbit would be printed as 1e+03, so the next unit is used.
        if bps >= 0.9995 * scale:
            value = bps / scale
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"
    return f"{bps:.0f}bit"


def count(number: float | None) -> str:
    """Return a count, thousands set apart."""
    return "-" if number is None else f"{number:,.0f}"


def state(view: View) -> Text:
    """Return the state of a resource, and why when it is not good."""
    word = "unreachable" if view.get("reachable") is False else str(view.get("state") or "-")
    text = Text(word, STATE_STYLES.get(word, ""))
    reason = view.get("state_reason") or view.get("last_error")
    if reason and word not in ("applied", "connected"):
        text.append(f" ({reason})", "dim")
    return text


def line_rate(port: View) -> str:
    """Return a port's line rate."""
    if port.get("line_rate"):
        return str(port["line_rate"])
    bps = port.get("line_rate_bps")
    return format_rate(bps) if bps else "none"


_ETHER_TYPES = {"0x0800": "ip", "0x86dd": "ipv6", "0x0806": "arp"}
_MATCH_WORDS = {"src_port": "sport", "dst_port": "dport", "ingress_port": "in"}


def match(fields: View) -> str:
    """Return a match in the words in which it is typed."""
    parts: list[str] = []
    for name, value in fields.items():
        if name == "protocol" and not isinstance(value, int):
            parts.insert(0, str(value))
        elif name == "ether_type" and value in _ETHER_TYPES:
            parts.insert(0, _ETHER_TYPES[value])
        else:
            word = {"protocol": "proto", "ether_type": "ethertype"}.get(name)
            parts.append(f"{word or _MATCH_WORDS.get(name, name)} {value}")
    return " ".join(parts) or "any"


_Words = Sequence[tuple[str, str, Callable[[Any], str]]]
"""Settings in the order in which they are shown: field, word, and how the value is typed."""

_OF_METER: _Words = (("cburst", "cburst", size), ("pburst", "pburst", size))
_OF_MARKS: _Words = (("yellow_dscp", "yellow-dscp", str), ("red_dscp", "red-dscp", str))


def _followed(follow: View) -> str:
    """Return the words of a class's `follow` setting, behind the word `follow`."""
    return (
        f"{follow['switch']} follow-port {follow['port']} "
        f"follow-fifo {exact_size(follow['fifo_bytes'])} "
        f"least {follow['least_rate']} most {follow['most_rate']}"
    )


_OF_MODE: _Words = (
    ("tick_hz", "hz", str),
    ("headroom_percent", "headroom", str),
    ("threshold_ns", "threshold", time),
    ("gap_bytes", "gap", exact_size),
    ("quantum_bytes", "quantum", exact_size),
    ("slots", "slots", str),
    ("slot_ns", "slot-time", time),
    ("slot", "slot", str),
    ("window_margin_bytes", "window-margin", exact_size),
    ("follow", "follow", _followed),
)
_OF_QUEUE: _Words = (
    ("ecn_threshold_bytes", "ecn", exact_size),
    ("limit_bytes", "limit", exact_size),
    ("allowance_ns", "allowance", lambda given: given if given == "exact" else time(given)),
    ("port", "port", str),
)


def _typed(view: View, words: _Words) -> list[str]:
    """Return settings in the words of the command line."""
    given = [(word, show, view.get(field)) for field, word, show in words]
    return [f"{word} {show(value)}" for word, show, value in given if value is not None]


def meter(view: View) -> str:
    """Return a meter in the words in which it is typed."""
    parts = [f"cir {view.get('cir')}"]
    if view.get("pir") and view["pir"] != view.get("cir"):
        parts.append(f"pir {view['pir']}")
    parts += _typed(view, _OF_METER)
    if view.get("drop_red") is False:
        parts.append("drop-red no")
    return " ".join([*parts, *_typed(view, _OF_MARKS)])


def pace(view: View) -> str:
    """Return how a class, or a flow with a rate of its own, is paced."""
    parts = [str(view[name]) for name in ("mode", "rate") if view.get(name)]
    word = view.get("allowance", view.get("allowance_ns"))
    if word in ("auto", "exact"):
        view = {**view, "allowance_ns": word if word == "exact" else None}
    return " ".join([*parts, *_typed(view, _OF_MODE), *_typed(view, _OF_QUEUE)])


def goal(flow: View) -> str:
    """Return the class or rate, the meter and the DSCP of a flow's packets."""
    parts = [f"class {flow['class']}"] if flow.get("class") else []
    if flow.get("rate"):
        parts.append(f"rate {flow['rate']}")
    if flow.get("meter_name"):
        parts.append(f"meter {flow['meter_name']}")
    elif flow.get("meter"):
        parts.append(f"meter {meter(flow['meter'])}")
    if flow.get("set_dscp") is not None:
        parts.append(f"set-dscp {flow['set_dscp']}")
    return " ".join(parts)


def one_line(kind: str, view: View) -> Text:
    """Return a resource on one line, as after a change."""
    told = _TOLD[kind](view)
    name = view["port"] if kind == "port" else view["name"]
    return Text.assemble(f"{kind} {name}: {told}, ", state(view))


def _port_told(view: View) -> str:
    delay = time(view.get("delay_ns"))
    counts = view.get("counts") or "-"
    fifo = size(view.get("fifo_bytes"))
    return f"rate {line_rate(view)} counts {counts} fifo {fifo} delay {delay}{gaps(view)}"


def gaps(port: View) -> str:
    """Return the filling of a port's gaps, in the words in which it is typed; "" for none."""
    if port.get("gap_mode") in (None, "accounted"):
        return ""
    longest = port.get("gap_frame_max_bytes")
    return f" gaps {port['gap_mode']}" + (f" gap-frame {longest}" if longest else "")


_TOLD: dict[str, Callable[[View], str]] = {
    "class": pace,
    "flow": lambda view: f"{match(view['match'])} -> {goal(view)}",
    "meter": meter,
    "port": _port_told,
    "switch": lambda view: str(view.get("address") or view.get("ovsdb") or ""),
}


def table(*columns: str) -> Table:
    """Return an empty table; a column whose name begins with ">" is aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for name in columns:
        right = name.startswith(">")
        made.add_column(
            Text(name.removeprefix(">"), "bold"),
            justify="right" if right else "left",
            overflow="fold",
        )
    return made


def cells(row: Iterable[object]) -> list[Text]:
    """Return a row's cells as plain text: names are no markup."""
    return [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]


def filled(
    columns: Mapping[str, _Cell], groups: Sequence[tuple[str, Sequence[View]]], *, switch: bool
) -> Table:
    """Return a table with a row for each resource; groups are (switch, resources)."""
    made = table(*(["SWITCH"] if switch else []), *columns)
    for name, views in groups:
        for view in views:
            made.add_row(
                *cells([*([name] if switch else []), *(c(view) for c in columns.values())])
            )
    return made


def listing(kind: str, groups: Sequence[tuple[str, Sequence[View]]]) -> Table:
    """Return a table of resources; groups are (switch, resources)."""
    return filled(_LISTINGS[kind], groups, switch=kind != "switch" and len(groups) > 1)


def _of(field: str, show: Callable[[Any], object] = str) -> _Cell:
    """Make a column of a field, or of one inside others ("a.b"); "-" where there is none."""

    def cell(view: View) -> object:
        value: Any = view
        for name in field.split("."):
            value = (value or {}).get(name)
        return "-" if value is None or value == "" else show(value)

    return cell


def _where(switch: View) -> str:
    """Return where a switch is."""
    return str(switch.get("address") or f"{switch.get('ovsdb')} {switch.get('bridge')}")


_LISTINGS: dict[str, dict[str, _Cell]] = {
    "switch": {
        "SWITCH": _of("name"),
        "KIND": lambda view: view.get("kind") or "p4runtime",
        "ADDRESS": _where,
        "PROGRAM": _of("program"),
        ">PORTS": lambda view: len(view.get("ports") or ()),
        ">CLASSES": _of("classes"),
        ">FLOWS": _of("flows"),
        "STATE": state,
    },
    "port": {
        ">PORT": _of("port"),
        "INTERFACE": _of("interface"),
        "LINK": _of("up", lambda up: Text("up", "green") if up else Text("down", "red")),
        ">LINE RATE": line_rate,
        "COUNTS": _of("counts"),
        ">FIFO": _of("fifo_bytes", size),
        ">DELAY": lambda view: time(view["delay_ns"]) if view.get("delay_ns") else "0",
        "GAPS": _of("gap_mode"),
        "QUEUES": _of("egress_queues", lambda has: f"{has['queues']} {has['scheduler']}"),
    },
    "class": {
        "CLASS": _of("name"),
        "MODE": _of("mode"),
        ">RATE": _of("rate"),
        "WITH": lambda view: " ".join(_typed(view, _OF_MODE)) or "-",
        ">LIMIT": _of("limit_bytes", size),
        ">ECN": _of("ecn_threshold_bytes", size),
        ">ALLOWANCE": _of("allowance_ns", time),
        ">PORT": _of("port"),
        "STATE": state,
    },
    "meter": {
        "METER": _of("name"),
        ">CIR": _of("cir"),
        ">PIR": _of("pir"),
        ">CBURST": _of("cburst", size),
        ">PBURST": _of("pburst", size),
        "DROP RED": lambda view: "yes" if view.get("drop_red", True) else "no",
        ">YELLOW": _of("yellow_dscp"),
        ">RED": _of("red_dscp"),
    },
    "flow": {
        "FLOW": _of("name"),
        ">PRIORITY": _of("priority"),
        "MATCH": lambda view: match(view["match"]),
        "GETS": goal,
        "STATE": state,
    },
}


def statistics(part: str, groups: Sequence[tuple[str, View]]) -> Table:
    """Return a table of measurements of a part: "classes", "flows" or "ports"."""
    rows = [(switch, measured[part]) for switch, measured in groups]
    shown = {
        title: cell
        for title, cell in STATISTICS[part].items()
        if title not in _IF_SEEN or any(cell(row) != "-" for _, found in rows for row in found)
    }
    made = filled(shown, rows, switch=len(groups) > 1)
    intervals = [measured["interval_s"] for _, measured in groups if measured.get("interval_s")]
    if part != "flows" and intervals:
        # The service's rates are over the time since the request before.
        made.caption = Text(f"Rates: of the last {time(round(max(intervals) * 1e9))}.")
        made.caption_justify = "left"
    return made


def class_name(row: View) -> str:
    """Return the name under which a row of a class's statistics is shown."""
    if row.get("name"):
        return str(row["name"])
    return f"flow {row['flow']}" if row.get("flow") else "(unclassified)"


def dropped(row: View) -> int | None:
    """Return the packets a class lost; None where the switch cannot say."""
    counts = [row.get(name) for name in ("limit_dropped", "red_dropped")]
    if counts == [None, None]:
        return None
    return sum(int(count["packets"]) for count in counts if count)


def owed(row: View) -> str:
    """Return the gap tokens a class owes: bytes at line rate where that is known, and time."""
    tokens = row.get("gap_tokens_bytes")
    return time(row.get("owed_ns")) + (f" {size(tokens)}" if tokens else "")


def why_below(row: View) -> str:
    """Return why a class is below its rate, in a few words; empty where it is at it."""
    found = row.get("below_rate")
    if not found:
        return ""
    texts = {
        "no-demand": "no demand",
        "limit": "drops at its limit",
        "line": "line is full",
        "stalled": f"machine stalled {found['stalled_ms']:.0f} ms",
    }
    return texts.get(found["reason"], str(found["reason"]))


def oversize(measured: View) -> str:
    """Return advice on ports that drop oversize frames; empty where no port does."""
    ports = [
        str(row["port"])
        for row in measured["ports"]
        if ((row.get("statistics") or {}).get("drops") or {}).get("oversize")
    ]
    if not ports:
        return ""
    return (
        f"{measured['switch']}: oversize frames dropped at port {', '.join(ports)}: "
        "the sender's MTU is larger, or its offload is on where the port does not take it "
        "(ethtool -K IF tso off gso off gro off)"
    )


def _port_drops(row: View) -> str:
    drops = (row.get("statistics") or {}).get("drops") or {}
    return ", ".join(f"{n} {cause}" for cause, n in drops.items() if n) or "-"


_IF_SEEN = (">MARKED", ">RTT", ">IN FLIGHT", "BELOW ITS RATE", ">GAP FRAMES")
"""Columns that are left out where no row has anything in them."""

STATISTICS: dict[str, dict[str, _Cell]] = {
    "classes": {
        "CLASS": class_name,
        ">RATE": _of("rate"),
        ">ACHIEVED": _of("achieved_bps", rate),
        ">PACKETS": _of("accepted.packets", count),
        ">BYTES": _of("accepted.bytes", size),
        ">DROPPED": lambda row: count(dropped(row)),
        ">QUEUE": _of("backlog_bytes", size),
        ">GAP OWED": owed,
        ">MARKED": _of("ce_marked.packets", lambda packets: count(packets or None)),
        ">RTT": _of("rtt_ns", lambda ns: time(ns or None)),
        ">IN FLIGHT": _of("in_flight_bytes", lambda held: size(held or None)),
        "BELOW ITS RATE": lambda row: why_below(row) or "-",
    },
    "flows": {
        "FLOW": _of("name"),
        "CLASS": _of("class"),
        ">PACKETS": _of("matched.packets", count),
        ">BYTES": _of("matched.bytes", size),
    },
    "ports": {
        ">PORT": _of("port"),
        "INTERFACE": _of("interface"),
        ">LINE RATE": line_rate,
        ">IN": _of("rx_bps", rate),
        ">OUT": _of("tx_bps", rate),
        ">PACKETS IN": _of("statistics.rx_packets", count),
        ">PACKETS OUT": _of("statistics.tx_packets", count),
        ">GAP FRAMES": _of("statistics.gap_frames", lambda frames: count(frames or None)),
        ">WORST LATENESS": _of("statistics.lateness.max_ns", time),
        "DROPS": _port_drops,
    },
}
"""The columns of the tables of a switch's statistics."""


def switch_tree(switch: View, parts: Mapping[str, Sequence[View]]) -> Tree:
    """Return a switch with everything on it, flows below their classes."""
    head = Text.assemble(
        (str(switch["name"]), "bold"),
        f"  {switch.get('program') or switch.get('kind')} at {_where(switch)}  ",
        state(switch),
    )
    made = Tree(head, guide_style="dim")
    for port in switch.get("ports") or ():
        made.add(_port_line(port))
    flows = parts.get("flows", ())
    for view in parts.get("classes", ()):
        branch = made.add(_line("class", view["name"], pace(view), view))
        for flow in flows:
            if flow.get("class") == view["name"]:
                branch.add(_line("flow", flow["name"], match(flow["match"]), flow))
    for flow in flows:
        if not flow.get("class"):
            told = f"{match(flow['match'])} -> {goal(flow)}"
            made.add(_line("flow", flow["name"], told, flow))
    for view in parts.get("meters", ()):
        made.add(Text.assemble("meter ", (str(view["name"]), "bold"), f"  {meter(view)}"))
    return made


def _line(kind: str, name: str, told: str, view: View) -> Text:
    text = Text.assemble(f"{kind} ", (str(name), "bold"), f"  {told}")
    if view.get("state") not in ("applied", None):
        text.append("  ")
        text.append_text(state(view))
    return text


def _port_line(port: View) -> Text:
    text = Text.assemble("port ", (str(port["port"]), "bold"), f"  {port.get('interface') or ''}  ")
    if port.get("up") is False:
        text.append("down  ", "red")
    if port.get("line_rate_bps"):
        text.append(f"rate {line_rate(port)} counts {port.get('counts')}  ")
    text.append(f"fifo {size(port.get('fifo_bytes'))}")
    if port.get("delay_ns"):
        text.append(f"  delay {time(port['delay_ns'])}")
    if told := gaps(port):
        text.append(f" {told}")
    return text


_OPS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


def changes(answer: View) -> Text:
    """Return the changes of a whole state, one line each, with the changed fields below it."""
    text = Text()
    for change in answer.get("changes", ()):
        sign, style = _OPS.get(change["op"], ("?", ""))
        name = f"{change['kind']} {change['name']}"
        where = "" if change["kind"] == "switch" else f" on {change['switch']}"
        before, after = change.get("before") or {}, change.get("after") or {}
        text.append(f"{sign} {name}{where}", style)
        if change["op"] == "update":
            text.append("\n")
            for field in [*after, *(f for f in before if f not in after)]:
                if before.get(field) != after.get(field):
                    old, new = _value(before.get(field)), _value(after.get(field))
                    text.append(f"    {field}: {old} -> {new}\n")
        else:
            fields = after or before
            told = ", ".join(f"{f} {_value(v)}" for f, v in fields.items() if v is not None)
            text.append(f"  {told}\n")
    if answer.get("truncated"):
        text.append("  ... and more\n", "dim")
    total = answer["summary"]
    parts = [f"{total[word]} {text_}" for word, text_ in _SUMMARY if total.get(word)]
    verb = "would change" if answer.get("dry_run") else "changed"
    text.append(f"{verb}: {', '.join(parts)}" if parts else "nothing to change")
    return text


_SUMMARY = (("create", "created"), ("update", "updated"), ("delete", "deleted"))


def _value(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{n}: {_value(v)}" for n, v in value.items()) + "}"
    return str(value)


def event(view: View) -> Text:
    """Return an event on one line."""
    style = {"drift": "yellow", "failed": "bold red", "denied": "red", "mended": "green"}
    kind = str(view.get("kind"))
    clock = str(view.get("time", "")).replace("T", " ").removesuffix("Z")[:23]
    text = Text.assemble((clock, "dim"), "  ", (f"{kind:<12}", style.get(kind, "")), "  ")
    text.append(str(view.get("message", "")))
    data = view.get("data") or {}
    if data.get("controller"):
        text.append(f"  (controller {data['controller']})", "dim")
    user, actor = data.get("user"), data.get("actor")
    if user or actor:
        text.append(f"  by {user or actor}", "dim")
    if user and actor:
        text.append(f" for {actor}", "dim")
    return text
