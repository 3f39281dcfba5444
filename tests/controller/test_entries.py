"""Resources to table entries; which writes turn one set into another."""

import ipaddress
from typing import Any

import finsy as fy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_harness import COMPILED
from pacer_controller import entries, rates
from pacer_controller.records import ClassRecord, Desired, FlowRecord, MeterRecord, Record
from pacer_controller.rows import CLASSES, Change, MatchValue, Op, Row, Rows, by_key, changes
from pacer_controller.schemas import ClassSpec, FlowSpec, MatchSpec, MeterSpec


def match(**fields: Any) -> dict[str, MatchValue]:
    (keys,) = entries.match_keys(MatchSpec.model_validate(fields))
    return keys


def test_ipv4_prefix_is_mapped_into_ipv6() -> None:
    value, mask = entries.address_key("10.1.0.0/16")
    assert ipaddress.IPv6Address(value) == ipaddress.IPv6Address("::ffff:10.1.0.0")
    assert mask == (1 << 128) - (1 << 16)


def test_whole_ipv4_space_is_not_everything() -> None:
    value, mask = entries.address_key("0.0.0.0/0")
    assert ipaddress.IPv6Address(value) == ipaddress.IPv6Address("::ffff:0:0")
    assert mask == (1 << 128) - (1 << 32)


def test_ipv6_prefix() -> None:
    value, mask = entries.address_key("2001:db8::/32")
    assert value == 0x20010DB8 << 96
    assert mask == 0xFFFFFFFF << 96


def test_whole_ipv6_space_is_the_ether_type_alone() -> None:
    assert match(src="::/0") == {"ether_type": (0x86DD, 0xFFFF)}


def test_fields_become_keys() -> None:
    assert match(
        ingress_port=1, vlan=0, dst="192.0.2.1", dscp=46, protocol="tcp", src_port=1, dst_port=5001
    ) == {
        "ingress_port": (1, 0x1FF),
        "ether_type": (0x0800, 0xFFFF),
        "vlan_id": (0, 0xFFF),
        "dst_addr": (0xFFFFC0000201, (1 << 128) - 1),
        "dscp": (46, 0x3F),
        "protocol": (6, 0xFF),
        "src_port": (1, 0xFFFF),
        "dst_port": (5001, 0xFFFF),
    }


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 65535))
def test_blocks_of_ports_match_exactly_the_range(one: int, other: int, port: int) -> None:
    first, last = sorted((one, other))
    blocks = entries.range_masks(first, last)
    assert sum(port & mask == value for value, mask in blocks) == (first <= port <= last)
    assert len(blocks) <= 30


def test_a_range_of_ports_is_the_fewest_entries() -> None:
    spec = MatchSpec.model_validate({"dst_port": "5000-5007", "src_port": 80})
    assert entries.match_keys(spec) == [{"dst_port": (5000, 0xFFF8), "src_port": (80, 0xFFFF)}]
    spec = MatchSpec.model_validate({"dst_port": "1-65535"})
    assert entries.entry_count(spec) == 16


def test_meter_by_name_is_the_same_entry() -> None:
    gold = MeterRecord("gold", MeterSpec.model_validate({"cir": "8Mbit"}))
    named = rows_of(flow("f", {"match": {}, "meter": "gold"}), (gold,))
    assert named == rows_of(flow("f", {"match": {}, "meter": {"cir": "8Mbit"}}))


def test_empty_match_has_no_keys() -> None:
    assert match() == {}


addresses = st.one_of(
    st.ip_addresses(v=4).map(lambda a: (a, 32)), st.ip_addresses(v=6).map(lambda a: (a, 128))
)


@given(addresses, st.integers(0, 128), st.data())
def test_prefix_matches_exactly_its_addresses(
    address: tuple[Any, int], length: int, data: st.DataObject
) -> None:
    network = ipaddress.ip_network((address[0], min(length, address[1])), strict=False)
    value, mask = entries.address_key(str(network))
    assert value & mask == value
    other = data.draw(st.ip_addresses(v=network.version))
    packed = int(other) | (0xFFFF << 32 if network.version == 4 else 0)
    assert (packed & mask == value) == (other in network)


def class_(name: str, index: int, **spec: Any) -> ClassRecord:
    return ClassRecord(name, index, ClassSpec.model_validate(spec))


def put(desired: Desired, kind: str, record: Record) -> None:
    desired.set(kind, record.name, record)


def flow(name: str, spec: dict[str, Any], private: int | None = None) -> FlowRecord:
    return FlowRecord(name, private, FlowSpec.model_validate(spec))


def rows_of(record: Record, meters: tuple[MeterRecord, ...] = ()) -> list[Row]:
    desired = Desired()
    for meter in meters:
        desired.set("meter", meter.name, meter)
    return entries.record_rows(record, desired)


def all_rows(desired: Desired) -> Rows:
    return by_key(row for _, _, one in desired.all() for row in entries.record_rows(one, desired))


def test_class_entry() -> None:
    (entry,) = rows_of(class_("video", 7, rate="500Mbit"))
    assert entry.action == "PacerIngress.paced_static"
    assert dict(entry.params) == {
        "time_per_byte_q24": 16 << 24,
        "limit_bytes": 32 * 1024 * 1024,
        "allowance_ns": 16384 * 16,
    }
    (unpaced,) = rows_of(class_("bulk", 8, mode="unpaced"))
    assert unpaced.action == "PacerIngress.unpaced"


def test_an_allowance_is_half_of_the_fifo_that_a_class_follows() -> None:
    limits = {"least_rate": "1Mbit", "most_rate": "1Gbit"}
    follow = {"switch": "wan", "port": 1, "fifo_bytes": 100_000, **limits}
    (found,) = rows_of(class_("video", 7, rate="500Mbit", follow=follow))
    assert dict(found.params)["allowance_ns"] == 50_000 * 16


def test_entry_of_fixed_gaps() -> None:
    (entry,) = rows_of(class_("bulk", 7, mode="ipg", rate="1Gbit", gap_bytes=1023))
    assert entry.action == "PacerIngress.paced_ipg"
    assert dict(entry.params) == {
        "time_per_byte_q24": 8 << 24,
        "gap_bytes": 1023,
        "limit_bytes": 32 * 1024 * 1024,
        "allowance_ns": 10 * (1518 + 8 + 1023) * 8,
        "ecn_threshold_bytes": 0,
    }


def test_entry_of_ticks() -> None:
    (entry,) = rows_of(class_("old", 7, mode="timer", rate="500Mbit"))
    assert entry.action == "PacerIngress.paced_timer"
    assert dict(entry.params) == {
        "time_per_byte_q24": 16 << 24,
        "tick_ns": 1_000_000,
        "ticks_per_ns_q64": (1 << 64) // 1_000_000,
        "limit_bytes": 32 * 1024 * 1024,
        "allowance_ns": 16384 * 16,
        "ecn_threshold_bytes": 0,
    }
    for hz, tick_ns in ((1, 10**9), (3, 333_333_333), (1024, 976_563), (10_000, 100_000)):
        (entry,) = rows_of(class_("old", 7, mode="timer", rate="500Mbit", tick_hz=hz))
        assert dict(entry.params)["tick_ns"] == tick_ns


def test_entry_of_a_quantum() -> None:
    (plain,) = rows_of(class_("fast", 7, rate="5Gbit", ecn_threshold_bytes=9_000))
    (quantum,) = rows_of(
        class_("fast", 7, rate="5Gbit", ecn_threshold_bytes=9_000, quantum_bytes=6_072)
    )
    assert quantum.action == "PacerIngress.paced_static_in_slot"
    cycle = {"cycle_ns": 9_715, "cycles_per_ns_q64": (1 << 64) // 9_715, "offset_ns": 9_715}
    assert dict(quantum.params) == {**dict(plain.params), **cycle}


def test_entries_of_slots() -> None:
    slots = {"slots": 4, "slot_ns": 24_288}
    cycle = {"cycle_ns": 97_152, "cycles_per_ns_q64": (1 << 64) // 97_152}
    (plain,) = rows_of(class_("video", 7, rate="125Mbit", ecn_threshold_bytes=9_000))
    (static,) = rows_of(
        class_("video", 7, rate="125Mbit", ecn_threshold_bytes=9_000, **slots, slot=3)
    )
    assert static.action == "PacerIngress.paced_static_in_slot"
    assert dict(static.params) == {**dict(plain.params), **cycle, "offset_ns": 3 * 24_288}
    of_flows = {**cycle, "slots": 4, "slot_ns": 24_288}
    for mode in ("pspd", "dynamic"):
        (without,) = rows_of(class_("bulk", 7, mode=mode))
        (within,) = rows_of(class_("bulk", 7, mode=mode, **slots))
        assert within.action == f"{without.action}_in_slots"
        assert dict(within.params) == {**dict(without.params), **of_flows}


def test_marking_takes_another_action_of_the_program() -> None:
    (plain,) = rows_of(class_("video", 7, rate="500Mbit"))
    (marks,) = rows_of(class_("video", 7, rate="500Mbit", ecn_threshold_bytes=100_000))
    assert marks.action == "PacerIngress.paced_static_controlled"
    assert dict(marks.params) == {
        **dict(plain.params),
        "ecn_threshold_bytes": 100_000,
        "bytes_per_ns_q24": 0,
        "window_margin_bytes": 0,
    }
    gap = {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 12}
    (gaps,) = rows_of(class_("video", 7, **gap, ecn_threshold_bytes=100_000))
    assert dict(gaps.params)["ecn_threshold_bytes"] == 100_000


def test_entries_of_modes_that_follow_flows() -> None:
    (dynamic,) = rows_of(class_("bulk", 7, mode="dynamic", headroom_percent=200))
    assert dynamic.action == "PacerIngress.paced_dynamic"
    assert dict(dynamic.params) == {
        "inverse_headroom_q16": 1 << 15,
        "time_per_byte_q24": 0,
        "limit_bytes": 32 * 1024 * 1024,
        "allowance_ns": 100_000,
        "ecn_threshold_bytes": 0,
        "bytes_per_ns_q24": 0,
        "window_margin_bytes": 0,
    }
    (pspd,) = rows_of(class_("bulk", 7, mode="pspd", ecn_threshold_bytes=100_000))
    assert pspd.action == "PacerIngress.paced_pspd"
    assert dict(pspd.params) == {
        "limit_bytes": 32 * 1024 * 1024,
        "allowance_ns": 100_000,
        "ecn_threshold_bytes": 100_000,
    }
    (clustered,) = rows_of(class_("bulk", 7, mode="clustered", ecn_threshold_bytes=100_000))
    assert clustered.action == "PacerIngress.paced_clustered"
    assert dict(clustered.params) == {**dict(pspd.params), "release_below_ns": 1_000_000}
    (shared,) = rows_of(class_("bulk", 7, mode="shared", rate="500Mbit"))
    assert shared.action == "PacerIngress.paced_shared"
    assert dict(shared.params) == {
        "time_per_byte_q24": rates.time_per_byte_q24(500_000_000),
        "limit_bytes": 32 << 20,
        "allowance_ns": 262_144,
        "ecn_threshold_bytes": 0,
        "bytes_per_ns_q24": rates.payload_bytes_per_ns_q24(500_000_000),
        "clamps_windows": 0,
        "window_margin_bytes": 0,
    }
    (clamped,) = rows_of(
        class_("bulk", 7, mode="shared", rate="500Mbit", window_margin_bytes=100_000)
    )
    assert dict(clamped.params) == {
        **dict(shared.params),
        "clamps_windows": 1,
        "window_margin_bytes": 100_000,
    }
    (slow_start,) = rows_of(class_("bulk", 7, mode="slow-start", rate="500Mbit"))
    assert slow_start.action == "PacerIngress.paced_slow_start"
    assert dict(slow_start.params) == {
        **dict(dynamic.params),
        "release_below_ns": 1_000_000,
        "inverse_headroom_q16": 54_613,
        "time_per_byte_q24": 16 << 24,
        "allowance_ns": 16384 * 16,
    }


def test_entry_that_lowers_windows_is_for_the_payload_of_its_rate() -> None:
    (clamps,) = rows_of(class_("bulk", 7, rate="500Mbit", window_margin_bytes=60_000))
    assert clamps.action == "PacerIngress.paced_static_controlled"
    params = dict(clamps.params)
    assert params["window_margin_bytes"] == 60_000
    bytes_per_second = int(params["bytes_per_ns_q24"]) * 10**9 / (1 << 24)
    assert abs(bytes_per_second - 62_500_000 * 1448 / 1518) < 60


def test_rate_change_is_one_modify() -> None:
    before = by_key(rows_of(class_("video", 1, rate="500Mbit")))
    after = by_key(rows_of(class_("video", 1, rate="300Mbit")))
    assert [c.op for c in changes(before, after)] == [Op.MODIFY]
    assert changes(after, after) == []


def test_class_comes_before_its_flow_and_goes_after_it() -> None:
    desired = Desired()
    put(desired, "class", class_("video", 1, rate="500Mbit"))
    put(desired, "flow", flow("f", {"match": {"dst_port": 80}, "class": "video"}))
    rows = all_rows(desired)
    tables = [(c.op, c.row.table) for c in changes({}, rows)]
    assert tables == [(Op.INSERT, CLASSES), (Op.INSERT, entries.FLOWS)]
    tables = [(c.op, c.row.table) for c in changes(rows, {})]
    assert tables == [(Op.DELETE, entries.FLOWS), (Op.DELETE, CLASSES)]


def test_new_match_is_there_before_the_old_one_goes() -> None:
    before = by_key(rows_of(flow("f", {"match": {"dscp": 1}, "rate": 8000}, 1)))
    after = by_key(rows_of(flow("f", {"match": {"dscp": 2}, "rate": 8000}, 1)))
    assert [c.op for c in changes(before, after)] == [Op.INSERT, Op.DELETE]


def test_meter_in_bytes_per_second() -> None:
    record = flow("f", {"match": {}, "meter": {"cir": "8Mbit", "pir": "16Mbit", "cburst": 20_000}})
    (entry,) = rows_of(record)
    assert entry.meter == (1_000_000, 20_000, 2_000_000, 20_000)
    assert dict(entry.params)["drop_red"] == 1
    assert dict(entry.params)["class_id"] == entries.UNCLASSIFIED


@pytest.mark.parametrize("target", ["pacing_switch", "bmv2"])
def test_every_entry_survives_the_wire_form(target: str) -> None:
    schema = fy.P4Schema(COMPILED / target / "pacer.p4info.txtpb")
    desired = Desired()
    put(desired, "class", class_("video", 1, rate="500Mbit"))
    put(desired, "class", class_("bulk", 2, mode="unpaced"))
    everything = {"ingress_port": 1, "vlan": 5, "src": "10.0.0.0/8", "dst": "192.0.2.1"}
    everything |= {"dscp": 46, "protocol": "udp", "src_port": 1, "dst_port": 65535}
    put(desired, "flow", flow("a", {"match": everything, "priority": 9, "class": "video"}))
    put(desired, "flow", flow("b", {"match": {"src": "2001:db8::/32"}, "rate": "8kbit"}, 3))
    put(desired, "flow", flow("c", {"match": {}, "class": "bulk", "meter": {"cir": "1Mbit"}}))
    for entry in all_rows(desired).values():
        message = entries.to_finsy(entry).encode(schema)
        assert entries.from_finsy(fy.P4TableEntry.decode(message, schema), schema) == entry


sets_of_rows = st.dictionaries(
    st.tuples(st.sampled_from([CLASSES, entries.FLOWS]), st.integers(0, 20)),
    st.integers(0, 3),
).map(
    lambda wanted: by_key(
        Row(table, (("key", key),), 0, "action", (("value", value),))
        for (table, key), value in wanted.items()
    )
)


def applied(rows: Rows, writes: list[Change]) -> Rows:
    """Apply writes as a switch does, refusals included."""
    result = dict(rows)
    for write in writes:
        assert (write.row.key in result) == (write.op is not Op.INSERT)
        if write.op is Op.DELETE:
            del result[write.row.key]
        else:
            result[write.row.key] = write.row
    return result


@given(sets_of_rows, sets_of_rows)
def test_changes_lead_from_any_state_to_any_other(before: Rows, after: Rows) -> None:
    assert applied(before, changes(before, after)) == after
