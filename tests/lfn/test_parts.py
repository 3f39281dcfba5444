"""The pieces that need no network: units, reports of other programs, figures."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from mininet.log import lg

from pacer_mininet import experiment, iperf, nodes, plot, report, table, tcp_state, traffic, units
from pacer_mininet.published import TABLE_5, published


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


def test_settings_name_the_field_at_fault() -> None:
    with pytest.raises(ValueError, match="seconds"):
        experiment.settings_from("paced", seconds="ten")
    with pytest.raises(ValueError, match="sender's 1gbit"):
        experiment.settings_from("paced", rate="2gbit")
    with pytest.raises(ValueError, match="congestion control"):
        experiment.settings_from("paced", congestion_control="bic; reboot")
    with pytest.raises(ValueError, match="fast"):
        experiment.settings_from("fast")


def test_tbf_gets_the_bottleneck_rate_for_full_frames() -> None:
    settings = experiment.settings_from("tbf")
    # 1514 bytes at this rate take as long as 1518 bytes at 500 Mbit/s, or a little longer.
    assert 1514 * 8 / settings.tbf_rate_bps >= 1518 * 8 / 500e6
    assert 1514 * 8 / (settings.tbf_rate_bps + 1) < 1518 * 8 / 500e6


def test_iperf_server_report() -> None:
    text = (
        "20231114221323,10.0.0.1,41846,10.0.0.2,5001,1,0.0-0.5,29901260,478420160\n"
        "20231114221325,10.0.0.1,41846,10.0.0.2,5001,1,0.0-3.3,196739132,478237489\n"
    )
    assert iperf.parse_server_report(text) == iperf.ServerReport(196_739_132, 478_237_489)
    for bad in ("", "connect failed: Connection refused", "a,b,c,d,e,f,g,h,i"):
        with pytest.raises(iperf.IperfError):
            iperf.parse_server_report(bad)


def test_iperf_client_must_get_its_congestion_control() -> None:
    said = "TCP congestion control set to bic\nlocal 10.0.0.1 connected with 10.0.0.2"
    iperf.check_client_output(said, "bic")
    with pytest.raises(iperf.IperfError, match="refused"):
        iperf.check_client_output(said, "cubic")
    with pytest.raises(iperf.IperfError, match="did not connect"):
        iperf.check_client_output("connect failed", "bic")


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
    assert (sample.bytes_acked, sample.bytes_received) == (35, 36)
    assert tcp_state.parse_message(head + struct.pack("=HH", 60000, 2) + info) is None
    assert tcp_state.parse_message(head + struct.pack("=HH", 0, 2) + info) is None
    assert tcp_state.parse_message(head[:20]) is None


def test_counters_of_this_namespace() -> None:
    found = tcp_state.counters(1)
    assert "TcpRetransSegs" in found
    assert "TcpExtTCPOFOQueue" in found


def test_bandwidth_series() -> None:
    bandwidth = traffic.Bandwidth({10: 1500, 12: 500}, {0: 2000}, {0: 1518})
    assert traffic.series(bandwidth.bin_bytes, 9, 5) == [0, 1500, 0, 500, 0]
    assert bandwidth.since(12 * traffic.BIN_NS).bin_bytes == {12: 500}
    bandwidth.add(traffic.Bandwidth({12: 700}))
    assert bandwidth.total_bytes == 2200
    assert bandwidth.vb_max_bytes == 1518
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
    assert experiment.drops_by_cause(statistics) == expected


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ("", "is empty"),
        ('{"ports": [', "cannot be read"),
        ("[]", "holds something else"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_switch_that_died_leaves_no_statistics_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str, told: str
) -> None:
    file = tmp_path / "s1-statistics.json"
    file.write_bytes(left.encode(errors="surrogateescape"))
    lg.addHandler(caplog.handler)
    try:
        assert nodes.read_statistics("s1", file) == {}
        assert f"s1: no statistics: {file} {told}" in caplog.text
        file.write_text('{"ports": []}')
        assert nodes.read_statistics("s1", file) == {"ports": []}
    finally:
        lg.removeHandler(caplog.handler)


def test_published_row() -> None:
    row = published(64 * 1024, 500_000_000, 200_000_000)
    assert row is not None
    assert row["unpaced"] == (210, 257)
    assert published(64 * 1024, 100_000_000, 200_000_000) is None
    assert published(12_345, 500_000_000, 200_000_000) is None
    assert all(set(cells) == set(experiment.RUN_NAMES) for cells in TABLE_5.values())


def _result(name: str) -> dict[str, Any]:
    """Return what a run gives, in its form; the values are of no run."""
    settings = experiment.settings_from(name, seconds=1)
    run = {
        "name": name,
        "mode": "lab",
        "kernel": "<6.1>",
        "congestion_control": "cubic",
        "congestion_control_asked": "bic",
        "seconds": 1,
        "rate_bps": settings.rate_bps,
        "rtt_ms_path": 200.0,
        "fifo_bytes": settings.fifo_bytes,
        "edge_rate_bps": 10**9,
        "shaper": {"rate_bps": 1, "burst_bytes": 15_000, "limit_bytes": 10**6},
        "goodput_bps": 400_000_000,
        "goodput_second_half_bps": 476_900_000,
        "bottleneck_drops": 1234,
        "edge_drops": 0,
        "retransmits": 1234,
        "rtt_ms": {"min": 200.0, "mean": 201.5, "max": 208.0},
        "bin_max_bps": 10**9,
        "bin_p99_bps": 10**9,
        "vb_max_bytes": 66_000,
        "lateness_max_ns": {"s1": 0},
        "stalls": {"s1": {"count": 0, "total_ns": 0}},
    }
    drops = {"at_ms": [50, 150], "packets": [0, 1234]}
    bins = [31_250] * 2000
    series = {"bin_ns": traffic.BIN_NS, "bin_bytes": bins, "bottleneck_drops": drops}
    return {"run": run, "series": series}


def test_report_holds_table_and_picture_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    results = [_result(name) for name in experiment.RUN_NAMES]
    picture, page = tmp_path / "bandwidth.png", tmp_path / "report.html"
    plot.draw(results, picture)
    first = picture.read_bytes()
    plot.draw(results, picture)
    assert picture.read_bytes() == first
    report.write(results, picture, page)
    text = page.read_text()
    assert "data:image/png;base64," in text
    assert "http" not in text
    assert "<script" not in text
    assert "&lt;6.1&gt;" in text
    # A column per run, so that it fits a narrow window.
    assert text.count('scope="col"') == len(results)
    assert text.count('scope="row"') == len(table.COLUMNS) - 1
    assert text.count('<td class="paced">') == len(table.COLUMNS) - 1
    runs = [result["run"] for result in results]
    assert "no bic" in " ".join(table.notes(runs))
    assert "1,234" in table.plain(runs)
    assert json.dumps(runs)


def test_real_time_runs_tell_lateness_and_stalls() -> None:
    run = _result("paced")["run"]
    lab = " ".join(table.notes([run]))
    run |= {"mode": "realtime", "lateness_max_ns": {"s1": 8_250_000, "wan": 10_000}}
    run["stalls"] = {"s1": {"count": 14, "total_ns": 20_500_000}, "wan": None}
    told = " ".join(table.notes([run]))
    assert "s1 8.25 ms (14 times, 20.5 ms), wan 0.01 ms." in told
    assert "stalled" not in lab


def test_stalls_are_counted_between_two_readings() -> None:
    def reading(stalls: int, stalled_ns: int) -> dict[str, Any]:
        return {"traffic_manager": {"attention": {"stalls": stalls, "stalled_ns": stalled_ns}}}

    found = experiment.stalls_between(reading(2, 500_000), reading(5, 900_000))
    assert found == {"count": 3, "total_ns": 400_000}
    assert experiment.stalls_between({"traffic_manager": {}}, reading(5, 9)) is None
