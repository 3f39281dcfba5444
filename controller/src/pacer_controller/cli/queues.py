"""Egress queues on the command line: what they hold and have sent, and the words that set them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import click
from rich.text import Text

from pacer_controller.cli import complete, render, tc_words
from pacer_controller.cli.connection import UsageError, path
from pacer_controller.cli.resources import KINDS
from pacer_controller.cli.session import Session
from pacer_controller.cli.words import read_rate, read_size, read_whole
from pacer_controller.problems import did_you_mean
from pacer_controller.queue_words import DEPTH_MOST_BYTES, SWITCH_BUFFER
from pacer_controller.rates import format_rate

QUANTILES = {"P50": 0.5, "P99": 0.99}


def rows(measured: Mapping[str, Any], port: int | None = None) -> list[dict[str, Any]]:
    """Return the queues in a switch's statistics, each with the number of its port."""
    return list(_rows(measured["ports"], port))


def _rows(ports: Sequence[Mapping[str, Any]], wanted: int | None) -> Iterator[dict[str, Any]]:
    for port in ports:
        if wanted in (None, port["port"]):
            for queue in (port.get("statistics") or {}).get("queues") or ():
                yield {"port": port["port"], **queue}


def quantile_below_ns(sojourn: Mapping[str, Any], part: float) -> int | None:
    """Return a time that this part of the packets did not wait for; None where there are none.

    It is the end of a bucket of the histogram, so it may be twice the quantile.
    """
    total, seen = sum(sojourn["buckets"]), 0
    for power, packets in enumerate(sojourn["buckets"]):
        seen += packets
        if packets and seen >= total * part:
            return min(1 << power, int(sojourn["max_ns"])) if power else 0
    return None


def _sojourns(row: Mapping[str, Any]) -> str:
    if row["sojourn"] is None:
        return "-"
    times = [quantile_below_ns(row["sojourn"], part) for part in QUANTILES.values()]
    shown = [render.time(ns) for ns in times]
    return " / ".join(shown) if times[0] is not None else "-"


def _drops(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{render.count(n)} {cause}" for cause, n in row["drops"].items() if n) or "-"


COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    ">PORT": lambda row: str(row["port"]),
    ">QUEUE": lambda row: str(row["queue"]),
    ">WAITING": lambda row: render.count(row["backlog_packets"]),
    ">BYTES": lambda row: render.size(row["backlog_bytes"]),
    ">MOST": lambda row: render.size(row["backlog_max_bytes"]),
    ">SENT": lambda row: render.count(row["tx_packets"]),
    ">MARKED": lambda row: render.count(row["marked_packets"]),
    f">SOJOURN {'/'.join(QUANTILES)} BELOW": _sojourns,
    ">LONGEST": lambda row: render.time((row["sojourn"] or {}).get("max_ns")),
    "DROPS": _drops,
}

LIVE_COLUMNS = {name: cell for name, cell in COLUMNS.items() if name not in (">MOST", ">LONGEST")}
"""The columns of rows of `grown`: those for which two samples suffice."""

_SENT = ("tx_packets", "marked_packets")


def grown(
    now: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return rows of queues with the growth of counters and sojourns in their place.

    A queue that is new, or whose counters have fallen, has None for packets, and no drops and
    buckets.

    Args:
        now: the queues, as `rows` returns them.
        before: those of an earlier sample.

    """
    earlier = {(row["port"], row["queue"]): row for row in before}
    return [_grown(row, earlier.get((row["port"], row["queue"]))) for row in now]


def _grown(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a row with the growth since an earlier one."""
    unknown = {**dict.fromkeys(_SENT), "drops": {}, "sojourn": {**row["sojourn"], "buckets": []}}
    if before is None:
        return {**row, **unknown}
    sent = {name: row[name] - before[name] for name in _SENT}
    drops = {cause: n - before["drops"].get(cause, 0) for cause, n in row["drops"].items()}
    pairs = zip_longest(row["sojourn"]["buckets"], before["sojourn"]["buckets"], fillvalue=0)
    buckets = [count - count_before for count, count_before in pairs]
    if min(*sent.values(), *drops.values(), *buckets) < 0:
        return {**row, **unknown}
    return {**row, **sent, "drops": drops, "sojourn": {**row["sojourn"], "buckets": buckets}}


def show(session: Session, switch: str, port: int | None) -> None:
    """Print the egress queues of a switch, or of one port of it.

    Raises:
        UsageError: there are none.

    """
    measured = session.connection.get(path("switches", switch, "stats"))
    found = rows(measured, port)
    if not found:
        if measured.get("state") != "connected":
            raise UsageError(f"switch {switch!r} is {render.state(measured)}: queues are not known")
        place = f"switch {switch!r}" if port is None else f"port {port} of switch {switch!r}"
        raise UsageError(
            f"{place} has no egress queues; on a pacing_switch, or Open vSwitch with the pacer, "
            f"`pacer queue set {switch} {port or 'PORT'} queues=8` makes some"
        )
    if session.as_json:
        session.print_json({switch: {"queues": found}})
        return
    made = render.filled(COLUMNS, [(switch, found)], switch=False)
    made.caption = Text("Sojourn: half of the packets, and 99 of 100, waited for less.")
    made.caption_justify = "left"
    render.console().print(made)


# ---- settings ----


def _read_share(text: str) -> int:
    """Return millionths of a decimal number."""
    try:
        return round(Decimal(text) * 10**6)
    except ArithmeticError:
        raise ValueError(f"{text!r} is not a share, such as 0.5") from None


def _read_buffer(text: str) -> int | str:
    """Return the size of a buffer, or the word for that of the switch."""
    return text if text == SWITCH_BUFFER else read_size(text)


def _tell_buffer(buffer: int | str) -> str:
    return buffer if isinstance(buffer, str) else render.exact_size(buffer)


_Words = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Field, and reader of its value, by word."""

_OF_PORT: _Words = {
    "queues": ("queues", read_whole),
    "scheduler": ("scheduler", str),
    "aqm": ("aqm", str),
    "buffer": ("buffer_bytes", _read_buffer),
}
_OF_QUEUE: _Words = {
    "fifo": ("fifo_bytes", read_size),
    "packets": ("packets", read_whole),
    "rate": ("rate", read_rate),
    "min": ("min_rate", read_rate),
    "share": ("buffer_share_ppm", _read_share),
    "burst": ("burst_bytes", read_size),
    "aqm": ("aqm", str),
}
WORDS = (
    *(f"{key}=" for key in _OF_PORT),
    *(f"q0.{key}=" for key in _OF_QUEUE),
    *tc_words.NAMES,
)
"""The beginnings of words, for completion."""

USAGE = """\b
Words as in the switch's option -i, with commas or spaces between them:
  queues=N          egress queues, 1 to 64; a packet's priority chooses one
  scheduler=ORDER   strict, drr:4:2:1, wfq:4:2:1, or a tree: who sends next;
                    paced in a tree is the place of held packets (default: before all)
  buffer=SIZE       a buffer that all queues have in common; switch: that of the switch
  aqm=AQM           of all queues: codel, fq_codel, pie, dualpi2, red, wred; none
  q0.fifo=SIZE      depth of queue 0 in bytes
  q0.packets=N      its depth in packets
  q0.rate=RATE      its highest rate
  q0.min=RATE       its minimum rate
  q0.share=NUMBER   its share of the common buffer
  q0.burst=SIZE     bytes that it may make up after a wait
  q0.aqm=AQM        its own active queue management
VALUE none: the default again. docs/queues.md has all forms.

\b
Words of tc, in the place of those; behind a queue, q0, they are that queue's:
  codel|fq_codel [target TIME] [interval TIME] [ecn]     pie [target TIME] [ecn]
  dualpi2 [target TIME]     red min SIZE max SIZE [probability NUMBER] [ecn]
  q0 rate RATE [ceil RATE] [cburst SIZE]     minimum (HTB's rate) and highest rate
  prio [bands N]     q0 drr [quantum SIZE]     order of the queues"""

_NUMBERED = re.compile(r"q([0-9]{1,2})\.([a-z]+)", re.ASCII)


Setting = tuple[int | None, str, Any]
"""A queue (None: all of the port), a field and its value (None: taken away)."""


def parse(words: Sequence[str]) -> list[Setting]:
    """Return the settings of words of the switch's option, such as "queues=3,q0.rate=10mbit".

    Words of tc, such as "q0 codel target 5ms", are taken for them (`tc_words`).

    Raises:
        UsageError: an unknown word, a word given twice, or a value that cannot be read.

    """
    settings: list[Setting] = []
    seen: set[str] = set()
    for word in tc_words.translated(list(filter(None, ",".join(words).split(",")))):
        key, _, value = word.partition("=")
        if key in seen:
            raise UsageError(f"queue: {key} is set twice")
        seen.add(key)
        settings.append(_setting(key, value))
    return settings


def _setting(key: str, value: str) -> Setting:
    numbered = _NUMBERED.fullmatch(key)
    queue = None
    if numbered is not None and numbered.group(2) in _OF_QUEUE:
        queue = int(numbered.group(1))
        if numbered.group(1) != str(queue):
            raise UsageError(f"queue: {key}: write q{queue}.{numbered.group(2)}")
        field, read = _OF_QUEUE[numbered.group(2)]
    elif key in _OF_PORT:
        field, read = _OF_PORT[key]
    else:
        known = [*_OF_PORT, *(f"qK.{name}" for name in _OF_QUEUE)]
        guess = did_you_mean(key, known) or f"; one of {', '.join(known)}"
        raise UsageError(f"queue: unknown word {key!r}{guess}")
    if not value:
        raise UsageError(f"queue: {key}= needs a value")
    # A queue without active queue management differs from one that has the port's.
    if value == "default" or (value == "none" and (queue is None or field != "aqm")):
        return queue, field, None
    try:
        return queue, field, read(value)
    except ValueError as error:
        raise UsageError(f"queue: {key}: {error}") from None


def changed(before: Mapping[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    """Return egress queues, as PUT takes them, with some settings changed; the others stay.

    Raises:
        UsageError: the number of queues is missing.

    """
    queues = {name: value for name, value in before.items() if name != "settings"}
    of = {one["queue"]: dict(one) for one in before.get("settings") or ()}
    for queue, field, value in settings:
        place = queues if queue is None else of.setdefault(queue, {"queue": queue})
        place[field] = value
    if queues.get("queues") is None:
        raise UsageError("queue: the port has no egress queues yet: give their number, queues=8")
    kept = ({n: v for n, v in of[number].items() if v is not None} for number in sorted(of))
    return {
        **{name: value for name, value in queues.items() if value is not None},
        "settings": [one for one in kept if len(one) > 1],
    }


_SHOWN: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "fifo_bytes": ("fifo", render.exact_size),
    "fifo_packets": ("packets", str),
    "packets": ("packets", str),
    "rate_bps": ("rate", lambda bps: format_rate(bps).lower()),
    "rate": ("rate", lambda rate: str(rate).lower()),
    "rate_pps": ("rate", "{}pps".format),
    "min_rate_bps": ("min", lambda bps: format_rate(bps).lower()),
    "min_rate": ("min", lambda rate: str(rate).lower()),
    "buffer_share_ppm": ("share", lambda ppm: f"{Decimal(ppm) / 10**6:f}"),
    "burst_bytes": ("burst", render.exact_size),
    "aqm": ("aqm", str),
}
"""Settings of a queue, requested or actual, and how they are typed."""


def told(queues: Mapping[str, Any]) -> str:
    """Return egress queues, requested or actual, in the words in which they are typed."""
    words = [
        f"{key}={_tell_buffer(queues[field]) if key == 'buffer' else queues[field]}"
        for key, (field, _) in _OF_PORT.items()
        if queues.get(field) not in (None, "none")
    ]
    words += [
        f"q{one['queue']}.{word}={show(one[field])}"
        for one in queues.get("settings") or ()
        for field, (word, show) in _SHOWN.items()
        if one.get(field) is not None
    ]
    return ",".join(words)


_ASKED = {"fifo_packets": "packets", "rate_bps": "rate", "min_rate_bps": "min_rate"}
"""Members of a port's actual queues whose names differ from those of the request."""


def requested(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested egress queues of a port, or else the actual ones, as PUT takes them.

    What only Thrift can set is left out, with a note.
    """
    asked = (view.get("desired") or {}).get("egress_queues")
    if isinstance(asked, dict):
        return asked
    actual = view.get("egress_queues") or {}
    settings = []
    for one in actual.get("settings") or ():
        kept = {_ASKED.get(name, name): value for name, value in one.items()}
        if kept.get("fifo_bytes") is not None:
            # Thrift sets no depth in bytes beside one in packets.
            kept["fifo_bytes"] = min(kept["fifo_bytes"], DEPTH_MOST_BYTES)
        lost = {name: kept.pop(name) for name in _BY_THRIFT if _BY_THRIFT[name](kept.get(name))}
        for name, value in lost.items():
            word, show = _SHOWN[name]
            click.echo(
                f"q{one['queue']}.{word}={show(value)} ends: it was set over Thrift, and the "
                "controller's state of a port has no such setting",
                err=True,
            )
        settings.append(kept)
    return {**actual, "settings": settings} if actual else {}


_BY_THRIFT: Mapping[str, Callable[[Any], bool]] = {
    "rate_pps": lambda pps: pps is not None,
    "packets": lambda packets: packets == 0,
}
"""Settings that only Thrift can make: a rate in packets, and a queue that takes no packet."""


# ---- commands ----


class _Group(click.Group):
    """A group whose command `show` may be left out: `pacer queue s1`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with `show` put in front where no command is given."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return a command by its name; any other word is a switch to show."""
        return super().get_command(ctx, cmd_name) or self.commands["show"]


_switch = click.argument("switch", shell_complete=complete.switches)
_port = click.argument("port", shell_complete=complete.names_of(KINDS["port"]))


@click.group(cls=_Group)
def queue() -> None:
    """Egress queues of ports: show what they did, set and unset them.

    `pacer queue s1` is `pacer queue show s1`.
    """


@queue.command("show")
@_switch
@click.argument("port", type=int, required=False)
@click.pass_obj
def show_(session: Session, switch: str, port: int | None) -> None:
    """Show the egress queues of SWITCH, or of one PORT of it."""
    show(session, switch, port)


@queue.command("set", epilog=USAGE)
@_switch
@_port
@click.argument("words", nargs=-1, required=True, shell_complete=complete.option_words(WORDS))
@click.pass_obj
def set_(session: Session, switch: str, port: str, words: tuple[str, ...]) -> None:
    """Give a port egress queues; settings that are not named stay."""
    kind = KINDS["port"]
    settings = parse(words)
    view, headers = session.read(kind, switch, port)
    body = {**kind.spec(view), "egress_queues": changed(requested(view), settings)}
    _tell(session, switch, session.write(kind, switch, port, body, headers))


@queue.command("unset")
@_switch
@_port
@click.pass_obj
def unset(session: Session, switch: str, port: str) -> None:
    """Give a port its FIFO back, and stop managing its queues."""
    kind = KINDS["port"]
    view, headers = session.read(kind, switch, port)
    rest = {name: value for name, value in kind.spec(view).items() if name != "egress_queues"}
    view = session.write(kind, switch, port, {**rest, "egress_queues": "none"}, headers)
    _tell(session, switch, view)
    if view.get("state") == "applied":
        _, headers = session.read(kind, switch, port)
        if rest:
            session.write(kind, switch, port, rest, headers)
        else:
            session.delete(kind, switch, port)


def _tell(session: Session, switch: str, view: dict[str, Any]) -> None:
    if session.as_json:
        session.print_json(view)
        return
    queues = view["desired"]["egress_queues"]
    shown = "no egress queues" if queues == "none" else told(queues)
    render.console().print(Text.assemble(f"port {view['port']}: {shown}, ", render.state(view)))
    session.say_pending(switch, view)
