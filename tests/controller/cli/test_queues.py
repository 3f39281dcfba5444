"""`pacer queue` and the queues of `pacer top`, with a switch whose port has egress queues."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from test_commands import Pacer, at

from controller_harness import Controller, Network, Switch, eventually
from pacer_controller.cli.connection import UsageError
from pacer_controller.cli.queues import changed, parse, quantile_below_ns, requested, told
from pacer_controller.cli.top import Screen

FRAME = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + bytes(46)


def test_queues_of_a_port_are_shown(
    wires: Network,
    start_controller: Callable[..., Controller],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program chooses no priority, so flooded frames leave by queue 0."""
    settings = {2: "rate=1gbit,queues=3,scheduler=wfq:4:2:1,aqm=codel"}
    switch = Switch(wires, settings)
    switch.start()
    try:
        controller = start_controller("--switch", f"s1={switch.address}{switch.options}")
        controller.wait_connected()
        pacer = at(controller, capsys, monkeypatch)
        wires.send(1, FRAME)
        check(pacer)
    finally:
        switch.kill()


def check(pacer: Pacer) -> None:
    """Look at the queues in each way."""

    def sent() -> bool:
        queues = pacer.json("queue s1")["s1"]["queues"]
        assert [(queue["port"], queue["queue"]) for queue in queues] == [(2, 0), (2, 1), (2, 2)]
        return bool([queue["tx_packets"] for queue in queues] == [1, 0, 0])

    eventually(sent, "the frame has left")
    (first,) = pacer.json("queue s1 2")["s1"]["queues"][:1]
    assert first["tx_bytes"] == 64
    assert first["drops"] == {}
    assert (first["marked_packets"], first["backlog_packets"]) == (0, 0)
    shown = pacer("queue s1")
    assert "SOJOURN P50/P99 BELOW" in shown
    assert "port 1 of switch 's1' has no egress queues" in pacer.refused("queue s1 1", 2)
    assert "the name is empty" in pacer.refused(("queue", ""), 2)
    for words, said in (
        ("queues=2,scheduler=wfq{q0}", "q1 is not in the tree; each queue of the port is there"),
        ("queues=2,scheduler=drr:1:0", "weight 0 is not between 1 and 65536"),
        ("q3.fifo=9KB", "queue 3: the port has queues 0 to 2"),
        ("q0.rate=2gbit", "queue 0: 2Gbit is above the line rate, 1Gbit"),
    ):
        error = pacer.refused(f"queue set s1 2 {words}", 1)
        assert said in error
        assert ": want " in error
    # The switch takes what tc's words become.
    said = pacer("queue set s1 2 fq_codel ecn q0 rate 5mbit ceil 10mbit cburst 9kb")
    assert "aqm=fq_codel:ecn,q0.rate=10mbit,q0.min=5mbit,q0.burst=9KB, applied" in said
    assert "SOJOURN P50/P99 BELOW" in shown_in_top(Screen(""), pacer.json("top s1 -n 1"))
    assert "SOJOURN P50/P99 BELOW" in pacer("top s1 -n 1")


def shown_in_top(screen: Screen, measured: dict[str, Any]) -> str:
    """Return the screen of `pacer top` in a terminal, after one more sample."""
    screen.take(measured)
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(screen.draw(console))
    return console.export_text()


def sample(now_ns: int, buckets: list[int], drops: dict[str, int], waiting: int) -> dict[str, Any]:
    """Return a switch's statistics with one egress queue, which marked each second packet."""
    queue = {
        "queue": 0,
        "backlog_packets": waiting,
        "backlog_bytes": 1518 * waiting,
        "tx_packets": sum(buckets),
        "marked_packets": sum(buckets) // 2,
        "drops": drops,
        "sojourn": {"buckets": buckets, "max_ns": 1 << 20},
    }
    port = {"port": 2, "statistics": {"queues": [queue]}}
    return {"switch": "s1", "now_ns": now_ns, "classes": [], "ports": [port]}


def test_top_shows_what_queues_did_in_the_last_interval() -> None:
    """The first 1,000 packets waited for up to 1 ms; the next hundred did not wait."""
    screen = Screen("")

    def row(now_ns: int, buckets: list[int], drops: dict[str, int], waiting: int) -> list[str]:
        shown = shown_in_top(screen, sample(now_ns, buckets, drops, waiting)).splitlines()
        (head,) = (at for at, line in enumerate(shown) if "SOJOURN" in line)
        assert shown[head].split() == [
            *("PORT", "QUEUE", "WAITING", "BYTES", "SENT", "MARKED", "SOJOURN", "P50/P99"),
            *("BELOW", "DROPS"),
        ]
        caption = [line.strip() for line in shown if "of the last" in line]
        (found,) = (line for line in shown[head + 1 :] if line.split()[:2] == ["2", "0"])
        return [*found.split()[2:], *caption]

    slow, both = [0] * 20 + [1000], [100] + [0] * 19 + [1000]
    first = row(10**9, slow, {"aqm": 7}, 3)
    assert first == ["3", "4.45KB", "-", "-", "-", "-"], "one sample has no growth"
    caption = "Sent, marked, sojourn and drops: of the last 2s."
    drops = {"aqm": 7, "queue-full": 5}
    second = ["1", "1.48KB", "100", "50", "0ns", "/", "0ns", "5", "queue-full", caption]
    assert row(3 * 10**9, both, drops, 1) == second
    assert row(3 * 10**9, both, drops, 1) == second, "the same sample again tells nothing new"
    caption = caption.replace("2s", "1s")
    assert row(4 * 10**9, both, drops, 0) == ["0", "0B", "0", "0", "-", "-", caption]
    # The counters of a switch that started again are not growth.
    assert row(5 * 10**9, [2], {}, 0)[2:6] == ["-", "-", "-", "-"]
    assert row(1 * 10**9, [3], {}, 0)[2:] == ["-", "-", "-", "-"]
    assert row(2 * 10**9, [4], {}, 0)[2:] == ["1", "1", "0ns", "/", "0ns", "-", caption]


def test_quantiles_are_the_ends_of_buckets() -> None:
    """Bucket k has times from 2^(k-1) to 2^k ns."""
    sojourn = {"buckets": [5, 0, 0, 4, 1], "max_ns": 9}
    assert [quantile_below_ns(sojourn, part) for part in (0.5, 0.9, 0.99)] == [0, 8, 9]
    assert quantile_below_ns({"buckets": [0, 0], "max_ns": 0}, 0.5) is None


def test_what_only_thrift_can_set_ends_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    settings = [
        {"queue": 0, "rate_pps": 1_000, "fifo_packets": 64, "fifo_bytes": 2**64 - 1},
        {"queue": 1, "fifo_packets": 0},
    ]
    actual = {"queues": 2, "scheduler": "strict", "settings": settings}
    kept = requested({"egress_queues": actual})
    assert kept["settings"] == [{"queue": 0, "packets": 64, "fifo_bytes": 2**40}, {"queue": 1}]
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" ends: ")[0] for line in said] == ["q0.rate=1000pps", "q1.packets=0"]
    # The controller's own state has no such settings.
    assert requested({"desired": {"egress_queues": actual}}) == actual


def test_words_change_what_they_name() -> None:
    words = (
        "queues=3,scheduler=strict{q2+wfq{q1:4+q0}}",
        "aqm=codel",
        "buffer=1MB,q0.rate=10mbit,q0.share=0.5,q1.aqm=none",
    )
    made = changed({}, parse(words))
    assert made == {
        "queues": 3,
        "scheduler": "strict{q2+wfq{q1:4+q0}}",
        "aqm": "codel",
        "buffer_bytes": 2**20,
        "settings": [
            {"queue": 0, "rate": "10mbit", "buffer_share_ppm": 500_000},
            {"queue": 1, "aqm": "none"},
        ],
    }
    assert told(made) == ",".join(words)
    shared = changed(made, parse(["buffer=switch"]))
    assert shared["buffer_bytes"] == "switch"
    assert "aqm=codel,buffer=switch,q0.rate=10mbit,q0.share=0.5" in told(shared)
    less = "aqm=none,buffer=none,q0.rate=none,q0.share=none,q1.aqm=default"
    assert changed(made, parse([less, "q2.fifo=64KB,q2.min=1mbit"])) == {
        "queues": 3,
        "scheduler": "strict{q2+wfq{q1:4+q0}}",
        "settings": [{"queue": 2, "fifo_bytes": 65536, "min_rate": "1mbit"}],
    }
    of_switch = {
        "queues": 2,
        "scheduler": "strict",
        "aqm": "none",
        "settings": [{"queue": 1, "rate_bps": 1_500_000, "burst_bytes": 3072, "fifo_packets": 9}],
    }
    shown = "queues=2,scheduler=strict,q1.packets=9,q1.rate=1.5mbit,q1.burst=3KB"
    assert told(of_switch) == shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("q0.rate=1mbit", "give their number, queues=8"),
        ("queues=2,buffer=all", "buffer: 'all' is not a size"),
        ("queues=none", "give their number, queues=8"),
        ("queues=two", "queues: 'two' is not a whole number"),
        ("queue=2", "unknown word 'queue'; did you mean 'queues'?"),
        ("queues=2,q0.colour=red", "unknown word 'q0.colour'"),
        ("queues=2,q0.rate=fast", "q0.rate: 'fast' is not a rate"),
        ("queues=2,q0.share=all", "q0.share: 'all' is not a share"),
        ("queues=2,queues=3", "queues is set twice"),
        ("queues=2,q1.rate=1mbit,q01.rate=2mbit", "q01.rate: write q1.rate"),
        ("queues", "'queues' is not key=value"),
        ("queues=2,q0.rate=", "q0.rate= needs a value"),
    ],
)
def test_wrong_words_are_named(words: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        changed({}, parse([words]))
    assert expected in str(error.value)
