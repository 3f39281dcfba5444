"""`pacer top`: a live view of every class and egress queue."""

import os
import select
import sys
import termios
import time
import tty
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pacer_controller.cli import queues, render
from pacer_controller.cli.connection import UnreachableError
from pacer_controller.cli.session import Session

HISTORY = 30
RETRY_S = 1.0
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH = 12


def samples(
    session: Session, switch: str | None, interval_ms: int, times: int | None
) -> Iterator[dict[str, Any]]:
    """Give statistics as they come.

    Args:
        session: the connection to the controller.
        switch: the name of the only switch to show; None: all switches.
        interval_ms: time between two rounds of the switches.
        times: number of rounds; None: no end.

    Raises:
        RefusedError: no such switch, or another error of the controller.
        UnreachableError: the controller went away.

    """
    query: dict[str, str | int] = {"interval_ms": interval_ms}
    if switch is not None:
        query["switch"] = switch
    if times is not None:
        query["count"] = times
    seen = Counter[str | None]()
    with session.connection.stream("/v1/stats/stream", query) as events:
        for kind, data in events:
            seen[data.get("switch") or data.get("instance")] += 1
            if kind == "stats":
                yield data
    if times is None or max(seen.values(), default=times) < times:
        raise UnreachableError("the controller ended the stream")


class Queues:
    """The egress queues of a switch, with what they did between the last two samples."""

    def __init__(self) -> None:
        self.grown: list[dict[str, Any]] = []
        self._newest: list[dict[str, Any]] = []
        self._at_ns = 0
        self._interval_ns: int | None = None

    def take(self, rows: list[dict[str, Any]], now_ns: int) -> None:
        """Take in a sample: rows of queues, and the switch's time; one seen already is ignored."""
        if self._newest and now_ns == self._at_ns:
            return
        # A switch that starts again begins its time again.
        went_on = bool(self._newest) and now_ns > self._at_ns
        self.grown = queues.grown(rows, self._newest if went_on else [])
        self._interval_ns = now_ns - self._at_ns if went_on else None
        self._newest, self._at_ns = rows, now_ns

    def table(self, switch: str) -> Table:
        """Return the table of the queues."""
        made = render.filled(queues.LIVE_COLUMNS, [(switch, self.grown)], switch=False)
        if self._interval_ns is not None:
            last = render.time(self._interval_ns)
            made.caption = Text(f"Sent, marked, sojourn and drops: of the last {last}.")
            made.caption_justify = "left"
        return made


class Screen:
    """The screen: newest statistics by switch, last rates by class, and growth by queue."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.newest: dict[str, Mapping[str, Any]] = {}
        self.trouble: str | None = None
        self._history: dict[tuple[str, str], deque[float]] = {}
        self._counts: dict[tuple[str, ...], tuple[int, int]] = {}
        self._growth: dict[tuple[str, ...], float] = {}
        """Growth per second of drops by switch and class, and of stalls in ns by switch."""
        self._queues: dict[str, Queues] = {}

    def take(self, measured: Mapping[str, Any]) -> None:
        """Take in the statistics of one switch."""
        switch = measured["switch"]
        self.newest[switch] = measured
        now_ns = measured.get("now_ns") or time.monotonic_ns()
        polling = (measured.get("traffic_manager") or {}).get("polling") or {}
        self._count((switch,), polling.get("stalled_ns"), now_ns)
        self._queues.setdefault(switch, Queues()).take(queues.rows(measured), now_ns)
        for row in measured["classes"]:
            key = switch, render.class_name(row)
            self._history.setdefault(key, deque(maxlen=HISTORY)).append(
                row.get("achieved_bps") or 0
            )
            self._count(key, render.dropped(row), now_ns)

    def _count(self, key: tuple[str, ...], value: int | None, now_ns: int) -> None:
        """Take in a counter; None where the switch has none."""
        if value is None:
            return
        before, at_ns = self._counts.get(key, (value, now_ns))
        if now_ns > at_ns:
            self._growth[key] = max(0, value - before) * 1e9 / (now_ns - at_ns)
        self._counts[key] = value, now_ns

    def draw(self, console: Console) -> Group:
        """Return the screen."""
        head = Text.assemble(("pacer top", "bold"), f"  {self.url}  {time.strftime('%H:%M:%S')}")
        if self.trouble:
            head.append(f"  {self.trouble}", "bold red")
        parts: list[Text | Table] = [head]
        for switch, measured in sorted(self.newest.items()):
            parts += [Text(), self._switch_line(switch, measured)]
            if measured["classes"]:
                parts.append(self._classes(switch, measured, console.width))
            elif measured.get("virtual_bottleneck"):
                parts.append(_no_classes(switch))
            for row in measured.get("virtual_bottleneck") or ():
                parts.append(_bottleneck_line(row))
            parts.append(render.filled(_PORT_COLUMNS, [(switch, measured["ports"])], switch=False))
            if self._queues[switch].grown:
                parts.append(self._queues[switch].table(switch))
            if note := render.oversize(measured):
                parts.append(Text(note, "yellow"))
        parts.append(Text("\nq quits", "dim"))
        return Group(*parts)

    def _switch_line(self, switch: str, measured: Mapping[str, Any]) -> Text:
        line = Text.assemble((switch, "bold cyan"), "  ", render.state(measured))
        if (switch,) in self._growth:
            share = self._growth[switch,] / 1e9
            line.append(f"  stalled {share:.1%} of the time", "yellow" if share > 0.01 else "dim")
        return line

    def _classes(self, switch: str, measured: Mapping[str, Any], width: int) -> Table:
        wide = width >= 100
        made = render.table(
            *("CLASS", ">TARGET", ">ACHIEVED"),
            *(["", "LAST 30"] if wide else []),
            *(">DROPS/s", ">QUEUE", ">GAP OWED", "BELOW ITS RATE"),
        )
        for row in sorted(measured["classes"], key=render.class_name):
            name = render.class_name(row)
            if not (row.get("name") or row.get("flow")) and not row.get("achieved_bps"):
                continue
            key = switch, name
            drops = self._growth.get(key, 0.0)
            made.add_row(
                Text(name),
                Text(row.get("rate") or "-"),
                Text(render.rate(row.get("achieved_bps")), "bold"),
                *([_bar(row), _sparkline(self._history[key], row.get("rate_bps"))] if wide else []),
                Text(render.count(drops), "red" if drops else ""),
                Text(render.size(row.get("backlog_bytes"))),
                Text(render.owed(row)),
                Text(render.why_below(row), "yellow"),
            )
        return made


def _used(port: Mapping[str, Any]) -> str:
    line, sent = port.get("line_rate_bps"), port.get("tx_bps")
    return f"{100 * sent / line:.1f}%" if line and sent is not None else "-"


_PORT_COLUMNS = {
    title: render.STATISTICS["ports"].get(title, _used)
    for title in (">PORT", "INTERFACE", ">LINE RATE", ">IN", ">OUT", ">USED", ">WORST LATENESS")
}


def _no_classes(switch: str) -> Text:
    return Text(f"gtrcnet: no classes; see `pacer burst {switch}`")


def _bottleneck_line(row: Mapping[str, Any]) -> Text:
    return Text(
        f"virtual bottleneck at port {row['port']}: {render.rate(row.get('achieved_bps'))} of "
        f"{render.rate(row.get('bottleneck_bps'))}, most queued {render.size(row['vb_max_bytes'])}"
    )


def _bar(row: Mapping[str, Any]) -> Text:
    target, achieved = row.get("rate_bps"), row.get("achieved_bps")
    if not target or achieved is None:
        return Text("")
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * achieved / target))
    return Text.assemble(("━" * filled, "green"), ("━" * (_BAR_WIDTH - filled), "bright_black"))


def _sparkline(history: deque[float], target: int | None) -> Text:
    top = max(*history, target or 0, 1)
    marks = (_BLOCKS[min(8, round(8 * value / top))] for value in history)
    return Text("".join(marks).rjust(HISTORY), "blue")


@contextmanager
def _keys() -> Iterator[Callable[[], bool]]:
    """Read single keys without echo; gives a function that says whether "q" was pressed.

    Without a terminal there are no keys.
    """
    if not sys.stdin.isatty():
        yield lambda: False
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:

        def pressed() -> bool:
            while select.select([descriptor], [], [], 0)[0]:
                key = os.read(descriptor, 1)
                if key in (b"q", b"Q", b""):
                    return True
            return False

        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def run(session: Session, switch: str | None, interval_ms: int, times: int | None) -> None:
    """Show statistics until "q", Ctrl-C or the last round; without a terminal, as plain text.

    The view waits for a controller that goes away; a refusal ends it.
    """
    if session.as_json or not sys.stdout.isatty():
        _plain(session, switch, interval_ms, times)
        return
    console = render.console()
    screen = Screen(session.url)
    with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as quits:
        while True:
            try:
                for measured in samples(session, switch, interval_ms, times):
                    screen.trouble = None
                    screen.take(measured)
                    live.update(screen.draw(console), refresh=True)
                    if quits():
                        return
                return
            except UnreachableError as error:
                if not screen.newest:
                    raise
                screen.trouble = f"{error}; trying again"
                live.update(screen.draw(console), refresh=True)
                end = time.monotonic() + RETRY_S
                while time.monotonic() < end:
                    if quits():
                        return
                    time.sleep(0.05)


def _plain(session: Session, switch: str | None, interval_ms: int, times: int | None) -> None:
    """Print samples one after the other: a JSON object a line, or tables."""
    waiting: dict[str, Queues] = {}
    for measured in samples(session, switch, interval_ms, times):
        if session.as_json:
            session.print_line(measured)
        else:
            console = render.console()
            console.print(Text(f"{measured['switch']}  {time.strftime('%H:%M:%S')}"))
            if measured["classes"]:
                console.print(render.statistics("classes", [(measured["switch"], measured)]))
            elif measured.get("virtual_bottleneck"):
                console.print(_no_classes(measured["switch"]))
            shown = waiting.setdefault(measured["switch"], Queues())
            shown.take(queues.rows(measured), measured.get("now_ns") or time.monotonic_ns())
            if shown.grown:
                console.print(shown.table(measured["switch"]))
        sys.stdout.flush()
