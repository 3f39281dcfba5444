"""The queue under test: scenarios, the kernel's disciplines, and the times that packets wait."""

import json

import pytest

from pacer_mininet.experiments import claims, l4s
from pacer_mininet.experiments.network import ScenarioTopo, network_key
from pacer_mininet.experiments.queueing import Wait, discipline_of, waited
from pacer_mininet.experiments.scenario import (
    BMV2_PACED,
    OVS_PACED,
    Flow,
    Queueing,
    Scenario,
    Shaper,
    from_json,
)
from pacer_mininet.tap import Seen

CODEL = Queueing("switch", egress_queues=(("queues", 1), ("aqm", "codel")))


def scenario_with(queueing: Queueing | None) -> Scenario:
    return Scenario((Flow(),), fifo_bytes=10 * 1518, queueing=queueing)


@pytest.mark.parametrize("queueing", [None, CODEL, Queueing("kernel", discipline="codel ecn")])
def test_a_scenario_reads_its_own_json(queueing: Queueing | None) -> None:
    scenario = scenario_with(queueing)
    assert from_json(scenario.to_json()) == scenario


def test_a_scenario_without_a_queue_under_test_does_not_name_one() -> None:
    assert "queueing" not in json.loads(scenario_with(None).to_json())


def test_queues_at_the_edge_are_part_of_the_network_and_named_only_if_given() -> None:
    plain = Scenario((Flow(),))
    queued = Scenario((Flow(),), edge_queues=(("queues", 1), ("scheduler", "wfq{paced+q0}")))
    assert "edge_queues" not in json.loads(plain.to_json())
    assert from_json(queued.to_json()) == queued
    assert network_key(queued) != network_key(plain)


@pytest.mark.parametrize("shaper", [OVS_PACED, BMV2_PACED])
def test_queues_at_the_edge_are_those_of_pacing_switch(shaper: Shaper) -> None:
    with pytest.raises(ValueError, match="those of pacing_switch"):
        Scenario((Flow(shaper),), edge_queues=(("queues", 1),))


def test_a_flow_without_a_tos_does_not_name_one() -> None:
    plain = scenario_with(None)
    assert "tos" not in json.loads(plain.to_json())["flows"][0]
    marked = Scenario((Flow(udp_bps=1_000_000, tos=1),))
    assert from_json(marked.to_json()) == marked
    with pytest.raises(ValueError, match="only UDP has a tos"):
        Scenario((Flow(tos=1),))


def test_the_wire_of_an_l4s_sender_has_a_switch_that_sets_ect_1() -> None:
    """It is before the edge, and only where the scenario names the sender."""
    flows = (Flow(congestion_control="dctcp"), Flow(sender=2))
    plain = Scenario(flows, queueing=CODEL)
    marking = Scenario(flows, queueing=CODEL, l4s_senders=(1,))
    assert "l4s_senders" not in json.loads(plain.to_json())
    assert from_json(marking.to_json()) == marking
    topo = ScenarioTopo(marking)
    beside = {
        name: {other for pair in topo.links() if name in pair for other in pair}
        for name in topo.nodes()
    }
    assert beside["a1"] == {"a1", "l4s1"}
    assert beside["l4s1"] == {"a1", "l4s1", "edge1"}
    assert beside["a2"] == {"a2", "edge1"}
    assert "l4s1" not in ScenarioTopo(plain).nodes()
    with pytest.raises(ValueError, match=r"L4S senders \(3,\): senders of flows"):
        Scenario(flows, l4s_senders=(3,))


def test_the_expected_ratio_of_rates_is_that_of_rfc_9332() -> None:
    """Appendix C.2: with a coupling factor of 2, Reno has as much as L4S at 25 ms."""
    ms = 1_000_000
    assert round(l4s.expected_ratio(0.5, 25 * ms), 2) == 0.98
    assert round(l4s.expected_ratio(0.7, 25 * ms), 2) == 1.11
    # The shorter the path, the more the classic queue counts.
    assert round(l4s.expected_ratio(0.7, 10 * ms), 2) == 1.74


def test_a_ratio_of_rates_is_measured_against_the_expected_one() -> None:
    row = {
        "row": "DCTCP beside Reno, 25 ms",
        "column": "DualPI2",
        "mode": "lab",
        "published": {"rate_ratio": 1.0},
        "values": {"rate_ratio": {"median": 1.2, "min": 1.2, "max": 1.2}},
        "extra": False,
    }
    (checked,) = [one for one in claims.check("l4s-shares", [row]) if "RFC 9332" in one["claim"]]
    assert (checked["worst"], checked["holds"]) == (20, False)


def test_a_queue_is_at_a_switch_or_in_a_kernel() -> None:
    with pytest.raises(ValueError, match="'cloud': not switch or kernel"):
        scenario_with(Queueing("cloud"))


def test_a_queue_under_test_has_a_network_of_its_own() -> None:
    kernel = [scenario_with(Queueing("kernel", discipline=one)) for one in ("codel", "pie")]
    assert network_key(kernel[0]) != network_key(kernel[1])


@pytest.mark.parametrize(
    ("discipline", "whole"),
    [
        ("bfifo", f"bfifo limit {10 * 1514}"),
        ("codel ecn", "codel ecn limit 10"),
        ("cake unlimited", "cake unlimited"),
    ],
)
def test_a_discipline_of_the_kernel_has_room_for_the_fifo(discipline: str, whole: str) -> None:
    assert discipline_of(scenario_with(Queueing("kernel", discipline=discipline))) == whole


def seen(at_ns: int, identity: bytes) -> Seen:
    return Seen(at_ns, identity, port=5001)


def test_marks_are_those_that_a_packet_gets_on_its_way() -> None:
    came = [seen(100, b"plain"), seen(200, b"marked"), Seen(300, b"before", 5001, is_ce=True)]
    left = [seen(400, b"plain")]
    left += [Seen(500, name, 5001, 1518, is_ce=True) for name in (b"marked", b"before")]
    assert [one.marked for one in waited(came, left)] == [False, True, False]
    assert [one.frame_bytes for one in waited(came, left)] == [0, 1518, 1518]


def test_a_packet_waits_from_one_wire_to_the_next() -> None:
    came = [seen(100, b"first"), seen(200, b"dropped"), seen(300, b"last")]
    left = [seen(50, b"older"), seen(400, b"last"), seen(900, b"first")]
    assert waited(came, left) == [Wait(400, 100, 5001), Wait(900, 800, 5001)]
