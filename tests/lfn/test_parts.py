"""The pieces that need no network: units, reports of other programs, figures."""

import runpy
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet import congestion, counters, paths, tcp_state, traffic, units
from pacer_mininet.experiments import demo, demo_options, demo_runs, page, plots, tables
from pacer_mininet.experiments.experiment import Cell
from pacer_mininet.experiments.shaping import class_of, kernel_rate_bps
from pacer_mininet.experiments.store import Store
from pacer_mininet.experiments.takano import PUBLISHED_AS
from pacer_mininet.published import TABLE_5, table_5


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("500mbit", 500_000_000), ("1gbit", 10**9), ("8kbit", 8_000), (930_000_000, 930_000_000)],
)
def test_rate(text: object, rate_bps: int) -> None:
    assert units.parse_rate(text) == rate_bps
    assert units.parse_rate(units.format_rate(rate_bps)) == rate_bps


@pytest.mark.parametrize(
    "text", ["0", "-1", "fast", "7999", "101gbit", "", "1e9", "5mbyte", "\u0665kbit"]
)
def test_bad_rate(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        units.parse_rate(text)


def test_size_is_binary_and_time_exact() -> None:
    assert units.parse_size("64KB") == 65_536
    assert units.parse_size("1.5kb") == 1_536
    assert units.format_size(65_536) == "64KB"
    assert units.parse_duration("200ms") == 200_000_000
    assert units.format_duration(200_000_000) == "200ms"
    with pytest.raises(ValueError, match="whole"):
        units.parse_duration("0.5ns")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--seconds", "ten", "seconds 'ten' is not a whole number"),
        ("--rate", "2gbit", "above the sender's 1gbit"),
        ("--cc", "bic; reboot", "congestion control"),
        ("--runs", "fast", "'fast' is not one of two, ten, unpaced, tick-tbf, tbf"),
        ("--fifo", "much", "much"),
    ],
)
def test_the_demo_names_the_option_at_fault(option: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        demo_runs.experiments_of(demo_options.options_of([option, value]))


def test_a_wrong_edge_of_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGE", "foo")
    with pytest.raises(SystemExit):
        demo_options.options_of([])
    assert "EDGE=foo: it is one of pacing_switch, ovs, bmv2" in capsys.readouterr().err
    assert demo_options.options_of(["--edge", "ovs"]).edge == "ovs"


def test_the_demo_begins_with_senders_that_do_not_know_of_each_other() -> None:
    shared, single = demo_runs.experiments_of(demo_options.options_of([]))
    titles = ["unpaced", "TBF in each", "fq in each", "one class at the edge"]
    assert [cell.column for cell in shared.cells] == 2 * titles
    assert {len(cell.scenario.flows) for cell in shared.cells} == {2, 10}
    assert {cell.scenario.fifo_bytes for cell in shared.cells} == {32 * 1024}
    for cell in shared.cells:
        rates = {flow.shaper.rate_bps(cell.scenario.rate_bps) for flow in cell.scenario.flows}
        assert rates == {cell.scenario.rate_bps}
        classes = {class_of(cell.scenario, n) for n in range(len(cell.scenario.flows))}
        if cell.column == titles[-1]:
            assert classes == {"class0"}
    columns = [cell.column for cell in single.cells]
    assert columns == ["unpaced", "tick-driven TBF", "TBF", "paced"]
    published = [dict(cell.published) for cell in single.cells]
    assert published[1:3] == [{"goodput": 191, "lost": 402}, {}]


def test_the_demos_settings_are_those_of_all_its_runs() -> None:
    words = ["--fifo", "1MB", "--seconds", "3", "--cc", "cubic", "--rate", "100mbit"]
    made = demo_runs.experiments_of(demo_options.options_of(words))
    for scenario in (cell.scenario for one in made for cell in one.cells):
        assert (scenario.fifo_bytes, scenario.seconds) == (1 << 20, 3)
        assert scenario.rate_bps == 100_000_000
        assert {flow.congestion_control for flow in scenario.flows} == {"cubic"}


def test_a_demo_in_real_time_has_the_single_flow_alone() -> None:
    (single,) = demo_runs.experiments_of(demo_options.options_of(["--realtime"]))
    assert {len(cell.scenario.flows) for cell in single.cells} == {1}
    (shared,) = demo_runs.experiments_of(demo_options.options_of(["--realtime", "--runs", "ten"]))
    assert {len(cell.scenario.flows) for cell in shared.cells} == {10}


def test_tbf_gets_the_bottleneck_rate_for_full_frames() -> None:
    rate_bps = kernel_rate_bps(500_000_000)
    # 1514 bytes at this rate take as long as 1518 bytes at 500 Mbit/s, or a little longer.
    assert 1514 * 8 / rate_bps >= 1518 * 8 / 500e6
    assert 1514 * 8 / (rate_bps + 1) < 1518 * 8 / 500e6


def test_kernel_message_is_read_and_a_lying_one_is_not_trusted() -> None:
    info = struct.pack("=8B24I4Q6I4Q2I2Q3I", *range(1, 54))
    info += bytes(-len(info) % 4)
    head = struct.pack("=BBBB", 2, 1, 0, 0) + struct.pack(">HH", 40000, 5001) + bytes(64)
    attribute = struct.pack("=HH", len(info) + 4, 2) + info
    sample = tcp_state.parse_message(head + attribute)
    assert sample is not None
    assert (sample.local_port, sample.remote_port) == (40000, 5001)
    # Field numbers of struct tcp_info: eight bytes, then words from 9 on.
    assert (sample.unacked_packets, sample.rtt_us, sample.cwnd_packets) == (13, 24, 27)
    assert sample.resent_packets == 32
    assert (sample.bytes_acked, sample.bytes_received) == (35, 36)
    assert tcp_state.parse_message(head + struct.pack("=HH", 60000, 2) + info) is None
    assert tcp_state.parse_message(head + struct.pack("=HH", 0, 2) + info) is None
    assert tcp_state.parse_message(head[:20]) is None


def test_counters_of_this_namespace() -> None:
    found = tcp_state.counters(1)
    assert "TcpRetransSegs" in found
    assert "TcpExtTCPOFOQueue" in found


def test_without_a_checkout_the_parts_are_those_of_the_debian_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in paths.OVERRIDES:
        monkeypatch.delenv(name, raising=False)
    installed = tmp_path / "python3" / "dist-packages" / "pacer_mininet"
    installed.mkdir(parents=True)
    found = runpy.run_path(str(shutil.copy(str(paths.__file__), installed)))
    assert found["SWITCH_BINARY"] == Path("/usr/bin/pacing_switch")
    assert found["CONTROLLER"] == Path("/usr/bin/pacer-controller")
    with pytest.raises(found["MissingError"], match="install the Debian packages pacing-switch"):
        found["need_built"](tmp_path / "nothing", "pacing_switch")


def test_bandwidth_series() -> None:
    bandwidth = traffic.Bandwidth({10: 1500, 12: 500}, {0: 2000}, {0: 1518})
    assert traffic.series(bandwidth.bin_bytes, 9, 5) == [0, 1500, 0, 500, 0]
    assert bandwidth.since(12 * traffic.BIN_NS).bin_bytes == {12: 500}
    bandwidth.add(traffic.Bandwidth({12: 700}))
    assert bandwidth.total_bytes == 2200
    assert traffic.bits_per_second(62_500, traffic.BIN_NS) == 1_000_000_000
    assert traffic.percentile(list(range(1, 101)), 99) == 99
    assert traffic.percentile([7], 99) == 7
    assert traffic.percentile([], 99) == 0
    assert traffic.regroup([1, 2, 3, 4, 5], 2) == [3, 7]


def test_drops_are_summed_over_ports_without_pruned_copies() -> None:
    statistics = {
        "traffic_manager": {"drops": {"ingress-drop": 1, "pruned": 5}},
        "ports": [
            {"statistics": {"drops": {"fifo-full": 2}}},
            {"statistics": {"drops": {"fifo-full": 3, "egress-drop": 2}}},
            {"statistics": None},
        ],
    }
    expected = {"egress-drop": 2, "fifo-full": 5, "ingress-drop": 1}
    assert counters.drops_by_cause(statistics) == expected


def test_published_row() -> None:
    assert table_5(64 * 1024, "unpaced") == {"goodput": 210, "lost": 257}
    assert table_5(64 * 1024, "unpaced", rate_bps=100_000_000) == {}
    assert table_5(12_345, "unpaced") == {}
    names = {PUBLISHED_AS.get(one.name, one.name) for one in demo_runs.RUNS.values()}
    assert all(set(cells) == names - {"TBF of today"} for cells in TABLE_5.values())


def _result(cell: Cell) -> dict[str, Any]:
    """Return the result of a run, with invented values."""
    flow = {
        "shaper": cell.column,
        "transfer_bytes": 0,
        "completion_ms": None,
        "goodput_bps": 400_000_000,
        "goodput_second_half_bps": 476_900_000,
        "rtt_ms": {"min": 200.0, "mean": 201.5, "max": 208.0},
    }
    drops = {"at_ms": [50, 150], "packets": [0, 1234]}
    series = {
        "bin_ns": traffic.BIN_NS,
        "bin_bytes": [31_250] * 2000,
        "window_vb_max_bytes": [66_000] * 10,
        "bottleneck_drops": drops,
        "flows": [[100_000 * n for n in range(20)]] * len(cell.scenario.flows),
    }
    return {
        "mode": "realtime",
        "kernel": "<6.1>",
        "commands": [],
        "flows": [flow],
        "goodput_bps": 400_000_000,
        "bottleneck_drops": 1234,
        "edge_drops": 0,
        "retransmits": 1234,
        "wan": {"bin_max_bps": 10**9, "bin_p99_bps": 10**9, "queue_max_bytes": 66_000},
        "lateness_max_ns": {"edge1": 8_250_000, "wan": 10_000},
        "stalls": {"edge1": {"count": 14, "total_ns": 20_500_000}, "wan": None},
        "series": series,
    }


def test_the_demos_report_holds_table_and_picture_and_nothing_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "of_this_kernel", lambda _choice: ["cubic"])
    options = demo_options.options_of(
        ["--seconds", "1", "--realtime", "--runs", "two,ten,unpaced,tick-tbf,tbf,paced"]
    )
    experiments = [
        demo_runs.for_kernel(one, "default", realtime=True)
        for one in demo_runs.experiments_of(options)
    ]
    store = Store(tmp_path / "runs", {})
    for cell in (cell for one in experiments for cell in one.cells):
        store.save(cell.scenario, _result(cell))
    results = {one.name: tables.results_of(one, store) for one in experiments}
    drawn = {one.name: plots.draw(one, results[one.name]) for one in experiments}
    assert drawn == {one.name: plots.draw(one, results[one.name]) for one in experiments}
    assert drawn.keys() == demo.PICTURES.keys()
    found = [tables.collect(one, store) for one in experiments]
    page.write(found, drawn, tmp_path / "report.html", title=experiments[0].title)
    text = (tmp_path / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 2
    assert "http" not in text
    assert "<script" not in text
    assert "&lt;6.1&gt;" in text
    assert "kernel has no BIC" in text
    plain = tables.plain(found[1]).splitlines()
    assert plain[0].split() == ["unpaced", "tick-driven", "TBF", "TBF", "paced"]
    lines = {line[:24].strip(): line[24:].split() for line in plain[2:]}
    assert lines["lost at the bottleneck"][:4] == ["1,234", "[257]", "1,234", "[402]"]
    # In real time the machine has its part in it, and the table says how much.
    assert lines["edge late, ms at most"] == ["8.25"] * 4


def test_stalls_are_counted_between_two_readings() -> None:
    def reading(stalls: int, stalled_ns: int) -> dict[str, Any]:
        return {"traffic_manager": {"polling": {"stalls": stalls, "stalled_ns": stalled_ns}}}

    found = counters.stalls_between(reading(2, 500_000), reading(5, 900_000))
    assert found == {"count": 3, "total_ns": 400_000}
    assert counters.stalls_between({"traffic_manager": {}}, reading(5, 9)) is None


def test_a_run_that_stalls_in_the_lab_is_no_result() -> None:
    none = {"count": 0, "total_ns": 0}
    counters.check_no_stalls({"edge1": none, "ovs": None})
    with pytest.raises(counters.ExperimentError, match=r"edge1 1,234 times.*tt_spin_after"):
        counters.check_no_stalls({"edge1": {"count": 1234, "total_ns": 5}, "wan": none})
