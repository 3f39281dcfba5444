"""The command's grammar, files and names, without a controller."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pacer_controller.cli import render, statefile
from pacer_controller.cli.connection import UsageError
from pacer_controller.cli.resources import CLASS, FLOW, KINDS, METER, PORT, body_of, flow_name
from pacer_controller.cli.trace import of_scapy
from pacer_controller.cli.words import nested
from pacer_controller.fields import NAME_PATTERN
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec, PortSpec


@pytest.mark.parametrize(
    ("typed", "fields"),
    [
        ("rate 500mbit", {"rate": "500mbit"}),
        (
            "rate 62.5MB/s limit 1MB port 2",
            {"rate": "62.5MB/s", "limit_bytes": 2**20, "port": 2},
        ),
        ("unpaced limit 1.5KB", {"mode": "unpaced", "limit_bytes": 1536}),
        ("allowance 24us", {"allowance_ns": 24_000}),
        ("allowance exact", {"allowance_ns": "exact"}),
        ("allowance auto", {"allowance_ns": None}),
        (
            "mode slow-start threshold 2ms headroom 150",
            {"mode": "slow-start", "threshold_ns": 2_000_000, "headroom_percent": 150},
        ),
        ("mode pspd", {"mode": "pspd"}),
        ("mode shared rate 500mbit", {"mode": "shared", "rate": "500mbit"}),
        ("mode clustered threshold 2ms", {"mode": "clustered", "threshold_ns": 2_000_000}),
        ("mode timer rate 500mbit hz 100", {"mode": "timer", "rate": "500mbit", "tick_hz": 100}),
        (
            "rate 125mbit slots 4 slot-time 24288ns slot 3",
            {"rate": "125mbit", "slots": 4, "slot_ns": 24_288, "slot": 3},
        ),
        ("rate 5gbit quantum 6072", {"rate": "5gbit", "quantum_bytes": 6_072}),
        ("mode pspd slots 16 slot-time 1ms", {"mode": "pspd", "slots": 16, "slot_ns": 1_000_000}),
        ("window-margin 100KB", {"window_margin_bytes": 102_400}),
        (
            "follow wan follow-port 1 follow-fifo 1MB least 50mbit most 500mbit",
            {
                "follow.switch": "wan",
                "follow.port": 1,
                "follow.fifo_bytes": 1 << 20,
                "follow.least_rate": "50mbit",
                "follow.most_rate": "500mbit",
            },
        ),
        ("mode ipg rate 1gbit gap 1500", {"mode": "ipg", "rate": "1gbit", "gap_bytes": 1500}),
        ("allowance none limit default", {"allowance_ns": None, "limit_bytes": None}),
        ("ecn 100KiB gap 1518", {"ecn_threshold_bytes": 102_400, "gap_bytes": 1518}),
    ],
)
def test_words_of_a_class(typed: str, fields: dict[str, Any]) -> None:
    assert CLASS.parse(typed.split()) == fields


@pytest.mark.parametrize(
    ("typed", "fields"),
    [
        (
            "match tcp dport 80 class video",
            {"match.protocol": "tcp", "match.dst_port": 80, "class": "video"},
        ),
        (
            "match udp dport 5000-5999 src 10.0.0.0/8 rate 1mbit prio 7",
            {
                "match.protocol": "udp",
                "match.dst_port": "5000-5999",
                "match.src": "10.0.0.0/8",
                "rate": "1mbit",
                "priority": 7,
            },
        ),
        (
            "match ipv6 vlan 100 dscp 46 in 3 meter gold",
            {
                "match.ether_type": "ipv6",
                "match.vlan": 100,
                "match.dscp": 46,
                "match.ingress_port": 3,
                "meter": "gold",
            },
        ),
        (
            "match proto 47 cir 5mbit cburst 20KB drop-red no",
            {
                "match.protocol": 47,
                "meter.cir": "5mbit",
                "meter.cburst": 20_480,
                "meter.drop_red": False,
            },
        ),
    ],
)
def test_words_of_a_flow(typed: str, fields: dict[str, Any]) -> None:
    assert FLOW.parse(typed.split()) == fields


def test_a_port_without_a_line_rate_is_asked_for_by_name() -> None:
    assert PORT.parse(["rate", "none", "delay", "100ms"]) == {
        "line_rate": "none",
        "delay_ns": 100_000_000,
    }


def test_none_gives_a_port_the_default_of_the_switch() -> None:
    assert PORT.parse(["fifo", "none", "gaps", "none"]) == {
        "fifo_bytes": 1_518_000,
        "gap_mode": "accounted",
    }


def test_oversize_frames_are_explained() -> None:
    ports = [{"port": 1, "statistics": {"drops": {"oversize": 3}}}, {"port": 2}]
    note = render.oversize({"switch": "s1", "ports": ports})
    assert "port 1" in note
    assert "tso off gso off gro off" in note
    assert render.oversize({"switch": "s1", "ports": ports[1:]}) == ""


def test_a_size_is_read_as_it_is_shown() -> None:
    assert PORT.parse(["fifo", render.size(1_518_000)]) == {"fifo_bytes": 1_520_435}


@pytest.mark.parametrize(
    ("grammar", "typed", "told"),
    [
        (CLASS, "rat 5mbit", "unknown word 'rat'; did you mean 'rate'?"),
        (CLASS, "burst 15KB", "tc's burst is a time here: allowance TIME"),
        (CLASS, "rate", "'rate' needs a value: rate RATE"),
        (CLASS, "rate 5mbit rate 6mbit", "rate is set twice"),
        (CLASS, "static unpaced", "mode is set twice"),
        (CLASS, "rate 5Mbps", "may mean bits or bytes"),
        (CLASS, "rate 1kbit", "below the lowest rate, 8kbit"),
        (CLASS, "limit lots", "'lots' is not a size; such as 64KB"),
        (CLASS, "limit 0.3", "no whole number"),
        (CLASS, "limit -5", "not a size"),
        (CLASS, "allowance 5min", "not a time; such as 100ms"),
        (CLASS, "allowance 20", "'20' has no unit: ns, us, ms or s"),
        (CLASS, "rate 10 mbit", "no space between number and unit: rate 10mbit"),
        (CLASS, "port two", "'two' is not a whole number"),
        (FLOW, "match tcp udp", "protocol is set twice"),
        (FLOW, "match dport 80-", "not a port, or a range such as"),
        (METER, "cir 1mbit drop-red maybe", "neither yes nor no"),
        (CLASS, "xyzzy", "one of rate, mode"),
    ],
)
def test_what_is_wrong_is_told(grammar: Any, typed: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        grammar.parse(typed.split())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_words_do_anything_but_parse_or_be_told(words: list[str]) -> None:
    for kind in KINDS.values():
        try:
            kind.grammar.parse(words)
        except UsageError:
            continue


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("class", ClassSpec), ("flow", FlowSpec), ("meter", MeterSpec), ("port", PortSpec)],
)
def test_set_keeps_every_field_that_can_be_written(kind: str, spec: type[BaseModel]) -> None:
    """What `set` sends back of a resource is all that the controller takes."""
    fields = {info.alias or name for name, info in spec.model_fields.items()}
    assert fields <= set(KINDS[kind].writable)


def test_an_allowance_that_follows_the_rate_is_sent_as_its_word() -> None:
    view = {"mode": "static", "rate": "8Mbit", "rate_bps": 8_000_000, "limit_bytes": 65536}
    spec = KINDS["class"].spec
    for word in ("auto", "exact"):
        assert spec({**view, "allowance": word, "allowance_ns": 5})["allowance_ns"] == word
    assert spec({**view, "allowance": "fixed", "allowance_ns": 5})["allowance_ns"] == 5


def test_default_bursts_of_a_meter_follow_its_rates() -> None:
    made = MeterSpec(cir=50_000_000, pir=80_000_000)
    view = {
        "cir": "50Mbit",
        "pir": "80Mbit",
        "drop_red": True,
        "cburst": made.cburst_bytes,
        "pburst": made.pburst_bytes,
    }
    assert KINDS["meter"].spec(view) == {"cir": "50Mbit", "pir": "80Mbit", "drop_red": True}
    assert KINDS["meter"].spec({**view, "pburst": 1_000_000})["pburst"] == 1_000_000


def test_a_new_goal_of_a_flow_replaces_the_former() -> None:
    flow = {"match": {"dst_port": 80}, "rate": "1Mbit", "limit_bytes": 9999}
    assert body_of(KINDS["flow"], {"class": "video"}, flow) == {
        "match": {"dst_port": 80},
        "class": "video",
    }
    joined = {"match": {"dst_port": 80}, "class": "video"}
    assert "class" not in body_of(KINDS["flow"], {"rate": "2Mbit"}, joined)
    with pytest.raises(UsageError, match="not both"):
        body_of(KINDS["flow"], {"rate": "2Mbit", "class": "video"}, joined)


def test_a_rate_paces_an_unpaced_class_and_unpaced_takes_the_rate() -> None:
    kind = KINDS["class"]
    assert body_of(kind, {"rate": "1mbit"}, {"mode": "unpaced"}) == {"rate": "1mbit"}
    assert body_of(kind, {"mode": "unpaced"}, {"mode": "static", "rate": "1Mbit"}) == {
        "mode": "unpaced"
    }
    gaps = {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 12, "ecn_threshold_bytes": 9000}
    assert body_of(kind, {"mode": "unpaced"}, gaps) == {"mode": "unpaced"}
    assert "gap_bytes" not in body_of(kind, {"mode": "static"}, gaps)
    flows = {"mode": "slow-start", "threshold_ns": 5, "headroom_percent": 150}
    assert body_of(kind, {"mode": "dynamic"}, flows) == {"mode": "dynamic", "headroom_percent": 150}
    assert body_of(kind, {"mode": "pspd"}, flows | {"rate": "1Mbit"}) == {"mode": "pspd"}
    slots = {"mode": "static", "rate": "1Mbit", "slots": 4, "slot_ns": 1_000, "slot": 3}
    assert body_of(kind, {"slots": None}, slots) == {"mode": "static", "rate": "1Mbit"}
    spread = {"mode": "dynamic", "rate": "1Mbit", "slots": 4, "slot_ns": 1_000}
    assert body_of(kind, {"mode": "dynamic"}, slots) == spread
    assert "slots" not in body_of(kind, {"mode": "timer"}, slots)
    ticks = {"mode": "timer", "rate": "1Mbit", "tick_hz": 100}
    assert body_of(kind, {"mode": "static"}, ticks) == {"mode": "static", "rate": "1Mbit"}


def test_nested_fields_leave_the_original_alone() -> None:
    before = {"match": {"dst_port": 80, "vlan": 5}}
    after = nested({"match.vlan": None, "match.src": "10.0.0.1"}, before)
    assert after == {"match": {"dst_port": 80, "src": "10.0.0.1"}}
    assert before == {"match": {"dst_port": 80, "vlan": 5}}


@pytest.mark.parametrize(
    ("match", "name"),
    [
        ({"protocol": "tcp", "dst_port": 80}, "tcp-dport-80"),
        ({"src": "10.0.0.0/8"}, "src-10.0.0.0-8"),
        ({"dst": "2001:db8::/32", "protocol": "udp"}, "udp-dst-2001_db8__-32"),
        ({"ether_type": "arp"}, "arp"),
        ({"dst_port": "5000-5999", "vlan": 7}, "dport-5000-5999-vlan-7"),
    ],
)
def test_a_flow_is_named_after_its_match(match: dict[str, Any], name: str) -> None:
    assert flow_name(match, None) == name
    assert re.fullmatch(NAME_PATTERN, name)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["src", "dst", "vlan", "dscp", "src_port"]),
        st.integers(0, 65535) | st.ip_addresses().map(str),
        min_size=1,
    )
)
def test_every_made_name_is_one(match: dict[str, Any]) -> None:
    assert re.fullmatch(NAME_PATTERN, flow_name(match, 1000))


def write(folder: Path, text: str) -> str:
    file = folder / "state.yaml"
    file.write_text(text)
    return str(file)


def test_a_state_file_is_read_as_json_would_be(tmp_path: Path) -> None:
    text = """
switches:
  s1:
    ports: {2: {line_rate: none, delay_ns: 1000}}
    classes:
      no: {rate: 500Mbit}
      010: {rate: 8kbit, limit_bytes: 0x10}
    flows:
      web: {match: {dst_port: 80, src: 10.0.0.0/8}, class: no}
      when: {match: {dst: 2001:db8::1}, rate: 1:20, priority: 2026-01-01}
"""
    s1 = statefile.load(write(tmp_path, text))["switches"]["s1"]
    assert s1["ports"] == {"2": {"line_rate": "none", "delay_ns": 1000}}
    assert s1["classes"] == {
        "no": {"rate": "500Mbit"},
        "010": {"rate": "8kbit", "limit_bytes": "0x10"},
    }
    assert s1["flows"]["web"] == {
        "match": {"dst_port": 80, "src": "10.0.0.0/8"},
        "class": "no",
    }
    assert s1["flows"]["when"]["rate"] == "1:20"
    assert s1["flows"]["when"]["priority"] == "2026-01-01"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: 'a' stands here twice"),
        ("switches: [\n", "line 2"),
        ("- a\n", "want a mapping"),
        ("", "want a mapping"),
        ("{[1]: 2}", "a name must be plain text"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1"),
        ("[" * 1_500, "nested too deeply"),
    ],
)
def test_a_state_file_that_is_none_is_told_with_its_place(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        statefile.load(write(tmp_path, text))


def test_what_is_dumped_is_read_back(tmp_path: Path) -> None:
    state = {"switches": {"s1": {"classes": {"on": {"rate": "8kbit"}}, "flows": {}}}}
    assert statefile.load(write(tmp_path, statefile.dump(state))) == state


@pytest.mark.parametrize(
    ("bps", "shown"),
    [(0, "0bit"), (999_900, "1.00Mbit"), (64_000, "64.0kbit"), (499_998_000, "500Mbit")],
)
def test_measured_rates_have_three_digits(bps: int, shown: str) -> None:
    assert render.rate(bps) == shown


def test_sizes_and_times_are_short() -> None:
    assert [render.size(n) for n in (0, 1518, 65536, 33_554_432)] == [
        "0B",
        "1.48KB",
        "64KB",
        "32MB",
    ]
    assert [render.time(n) for n in (0, 24_288, 100_000_000)] == ["0ns", "24.29us", "100ms"]


def test_a_match_is_shown_in_the_words_in_which_it_is_typed() -> None:
    typed = "tcp src 10.0.0.0/8 dport 80 in 2"
    fields = FLOW.parse(typed.split())
    match = nested(fields)["match"]
    assert render.match(match) == typed
    assert FLOW.parse(render.match(match).split()) == fields


def test_a_packet_in_the_words_of_scapy() -> None:
    assert len(of_scapy("Ether()/IP()/TCP()")) == 54
    with pytest.raises(UsageError, match="--scapy 'Ether\\(\\)/Nothing'"):
        of_scapy("Ether()/Nothing")


def test_without_scapy_the_error_names_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scapy.all", None)
    with pytest.raises(UsageError, match=r"apt install .* python3-scapy, or pip install scapy"):
        of_scapy("Ether()")
