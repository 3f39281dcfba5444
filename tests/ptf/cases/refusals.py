"""P4Runtime requests that must be refused: the code, the thing named, nothing changed.

Codes are those of the P4Runtime specification where it has one. BMv2's older server answers
some of these with another code, or lets them pass; each such place says so. Its texts are its
own and not looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from finsy.proto import p4r

from harness import (
    COMES_SECONDS,
    FLOOD_GROUP,
    PacerTest,
    as_int,
    mac_of,
    time_per_byte_q24,
    udp_frame,
)
from p4runtime_client import Client, Match, P4RuntimeError, Rates

UNKNOWN_ID = 0x02ABCDEF


class RefusalTest(PacerTest):
    """A test that ends by proving that the switch is as it was and forwards on."""

    def setUp(self) -> None:
        """Remembers the tables' entries."""
        super().setUp()
        self.install(self.flow({"dst_port": 2000}, 3), self.paced(3, 8_000_000))
        self.kept = self.state()

    def state(self) -> list[bytes]:
        """Every table's entries."""
        tables = ("flows", "classes", "forward", "sources")
        return sorted(
            entry.SerializeToString(deterministic=True)
            for table in tables
            for entry in self.switch.entries(f"PacerIngress.{table}")
        )

    def unharmed(self) -> None:
        """State is unchanged and packets still go through, paced class included."""
        self.assertEqual(self.state(), self.kept)
        frames = [udp_frame(number=1), udp_frame(number=2, dst_port=9)]
        for frame in frames:
            self.send(1, frame)
            self.comes(2, frame)
        self.nothing_comes()
        self.accepted(3, frames[:1])

    def insert(self, entity: p4r.Entity) -> p4r.Update:
        """An INSERT of it."""
        return p4r.Update(type=p4r.Update.INSERT, entity=entity)

    def modify(self, entity: p4r.Entity) -> p4r.Update:
        """A MODIFY of it."""
        return p4r.Update(type=p4r.Update.MODIFY, entity=entity)

    def delete(self, entity: p4r.Entity) -> p4r.Update:
        """A DELETE of it."""
        return p4r.Update(type=p4r.Update.DELETE, entity=entity)

    def changed(self, entity: p4r.Entity, change: Callable[[p4r.TableEntry], None]) -> p4r.Entity:
        """The entity with a change made to its table entry."""
        change(entity.table_entry)
        return entity


class WrongWidths(RefusalTest):
    """Values too wide for a key field, a mask or an action parameter, or of no bytes.

    Specification 9.1: INVALID_ARGUMENT in match fields and action parameters, where the rule
    for byte strings alone (8.4) would be OUT_OF_RANGE.
    """

    def runTest(self) -> None:
        def mac(value: bytes) -> Callable[[p4r.TableEntry], None]:
            def change(entry: p4r.TableEntry) -> None:
                entry.match[0].exact.value = value

            return change

        station = self.station(mac_of(0x44), 2)
        self.refused(
            self.insert(self.changed(station, mac(b"\x01" + bytes(6)))),
            "INVALID_ARGUMENT",
            ["PacerIngress.forward", "dst_mac"],
        )
        self.refused(
            self.insert(self.changed(self.station(mac_of(0x44), 2), mac(b""))),
            "INVALID_ARGUMENT",
            ["PacerIngress.forward", "dst_mac"],
            bmv2="ACCEPTED",  # taken for a zero
        )
        self.refused(
            self.insert(self.station(mac_of(0x44), 512)),
            "INVALID_ARGUMENT",
            ["PacerIngress.forward_to", "port"],
        )
        self.refused(
            self.insert(self.flow({"vlan_id": (4096, 0xFFFF)})),
            "INVALID_ARGUMENT",
            ["PacerIngress.flows", "vlan_id"],
        )
        self.refused(
            self.insert(self.flow({"dscp": 1}, yellow_dscp=64)),
            "INVALID_ARGUMENT",
            ["PacerIngress.classify", "yellow_dscp"],
        )
        self.unharmed()


class UnknownIds(RefusalTest):
    """Tables, fields, actions and parameters that the program does not have."""

    def runTest(self) -> None:
        def table(entry: p4r.TableEntry) -> None:
            entry.table_id = UNKNOWN_ID

        def field(entry: p4r.TableEntry) -> None:
            entry.match[0].field_id = 99

        def action(entry: p4r.TableEntry) -> None:
            entry.action.action.action_id = UNKNOWN_ID

        def param(entry: p4r.TableEntry) -> None:
            entry.action.action.params[0].param_id = 99

        def foreign(entry: p4r.TableEntry) -> None:
            entry.action.CopyFrom(self.switch.action("PacerIngress.known", {}))

        number = str(UNKNOWN_ID)
        known = self.program.action("PacerIngress.known").preamble.id
        for change, code, names in (
            (table, "NOT_FOUND", [number]),
            (field, "INVALID_ARGUMENT", ["PacerIngress.forward", "99"]),
            (action, "INVALID_ARGUMENT", [number]),
            (param, "INVALID_ARGUMENT", ["PacerIngress.forward_to", "99"]),
            (foreign, "INVALID_ARGUMENT", ["PacerIngress.forward", str(known)]),
        ):
            update = self.insert(self.changed(self.station(mac_of(0x44), 2), change))
            self.refused(update, code, names, bmv2="INVALID_ARGUMENT")
        self.unharmed()


class MissingParts(RefusalTest):
    """A ternary entry without priority, an exact one with, fields and parameters left out."""

    def runTest(self) -> None:
        def no_parameters(entry: p4r.TableEntry) -> None:
            del entry.action.action.params[:]

        def no_field(entry: p4r.TableEntry) -> None:
            del entry.match[:]

        def no_action(entry: p4r.TableEntry) -> None:
            entry.ClearField("action")

        def priority(entry: p4r.TableEntry) -> None:
            entry.priority = 7

        self.refused(
            self.insert(self.flow({"dscp": 1}, priority=0)),
            "INVALID_ARGUMENT",
            ["PacerIngress.flows", "priority"],
        )
        for change, names in (
            (no_parameters, ["PacerIngress.forward_to", "port"]),
            (no_field, ["PacerIngress.forward", "dst_mac"]),
            (no_action, ["PacerIngress.forward", "action"]),
            (priority, ["PacerIngress.forward", "priority"]),
        ):
            self.refused(
                self.insert(self.changed(self.station(mac_of(0x44), 2), change)),
                "INVALID_ARGUMENT",
                names,
            )
        self.unharmed()


class DuplicatesAndAbsentees(RefusalTest):
    """An INSERT of an existing entry; a MODIFY or DELETE of a missing one."""

    def runTest(self) -> None:
        here, absent = self.station(mac_of(2), 3), self.station(mac_of(0x44), 3)
        name = ["PacerIngress.forward"]
        self.refused(self.insert(here), "ALREADY_EXISTS", name)
        self.refused(self.modify(absent), "NOT_FOUND", name)
        self.refused(self.delete(absent), "NOT_FOUND", name)
        flow = self.flow({"dst_port": 2000}, 9)
        self.refused(self.insert(flow), "ALREADY_EXISTS", ["PacerIngress.flows"])
        other_priority = self.flow({"dst_port": 2000}, 9, priority=11)
        self.refused(self.modify(other_priority), "NOT_FOUND", ["PacerIngress.flows"])
        group = Client.multicast_group(FLOOD_GROUP, [1])
        self.refused(self.insert(group), "ALREADY_EXISTS", [str(FLOOD_GROUP)])
        self.refused(self.delete(Client.multicast_group(77, [])), "NOT_FOUND", ["77"])
        self.unharmed()


class DefaultsAreConstant(RefusalTest):
    """The program fixes the tables' default actions."""

    def runTest(self) -> None:
        for table, action in (
            ("PacerIngress.classes", "PacerIngress.unpaced"),
            ("PacerIngress.forward", "PacerIngress.flood"),
        ):
            entity = self.switch.entry(table, {}, action)
            entity.table_entry.is_default_action = True
            self.refused(self.modify(entity), "PERMISSION_DENIED", [table])
        learn = self.switch.entry(
            "PacerIngress.sources",
            {"src_mac": as_int(mac_of(0x44)), "ingress_port": 1},
            "PacerIngress.learn",
        )
        self.refused(
            self.insert(learn),
            "PERMISSION_DENIED",
            ["PacerIngress.sources", "PacerIngress.learn"],
        )
        self.unharmed()


class NonCanonicalTernary(RefusalTest):
    """A value with bits outside its mask, and a mask of zero, which is said by leaving out."""

    def runTest(self) -> None:
        for match in ({"dst_port": (0x0101, 0xFF00)}, {"dst_port": (0, 0)}):
            self.refused(
                self.insert(self.flow(self.widened(match))),
                "INVALID_ARGUMENT",
                ["PacerIngress.flows", "dst_port"],
            )
        self.unharmed()

    @staticmethod
    def widened(match: dict[str, tuple[int, int]]) -> Match:
        """The same, as the client takes it."""
        return dict(match)


class MeterRates(RefusalTest):
    """Meaningless marker rates: negative ones, and a peak below the committed rate.

    BMv2 refuses them only after it has added the entry, and its server's tables are out of
    step with the switch from then on: there the refusal is all that is asserted.
    """

    def runTest(self) -> None:
        for rates, field, bmv2 in (
            (Rates(-1, 1, 1, 1), "cir", "UNKNOWN"),
            (Rates(1, -5, 1, 1), "cburst", "INVALID_ARGUMENT"),
            (Rates(100, 10, 50, 10), "pir", "UNKNOWN"),
        ):
            self.refused(
                self.insert(self.flow({"dscp": 1}, rates=rates)),
                "INVALID_ARGUMENT",
                ["PacerIngress.flows", field],
                bmv2=bmv2,
            )
        if not self.on_bmv2:
            self.unharmed()


class CounterIndices(RefusalTest):
    """Cells past the end of a counter are neither written nor read."""

    def runTest(self) -> None:
        cell = p4r.Entity()
        cell.counter_entry.counter_id = self.program.counter_id("PacerIngress.class_accepted")
        cell.counter_entry.index.index = self.class_count
        cell.counter_entry.data.packet_count = 1
        self.refused(
            self.modify(cell), "OUT_OF_RANGE", ["PacerIngress.class_accepted"], bmv2="UNKNOWN"
        )
        with self.assertRaises(P4RuntimeError):
            self.switch.counter("PacerIngress.class_accepted", self.class_count)
        with self.assertRaises(P4RuntimeError):
            self.switch.counter("PacerIngress.class_accepted", -1)
        self.unharmed()


class OneBadUpdateInABatch(RefusalTest):
    """A batch with a bad update: the others are carried out, the bad one is named."""

    def runTest(self) -> None:
        good = [self.station(mac_of(0x44), 2), self.station(mac_of(0x45), 3)]
        bad = self.station(mac_of(2), 3)
        with self.assertRaises(P4RuntimeError) as caught:
            self.switch.insert(good[0], bad, good[1])
        self.assertEqual(caught.exception.code.name, "ALREADY_EXISTS")
        self.switch.delete(*good)
        self.unharmed()


class BrokenPipelines(RefusalTest):
    """A program that cannot be loaded is refused, and the old one goes on with its state.

    Not run on BMv2: it clears its tables before it looks at the new program, and after a
    program that is not JSON it refuses every later one, good ones too.
    """

    def runTest(self) -> None:
        if self.on_bmv2:
            self.skipTest("bmv2 takes no program at all after a broken one")
        whole = self.program.device_config
        for broken in (b"", b"{", b"[]", b"\xff" * 64, whole[: len(whole) // 2]):
            with self.assertRaises(P4RuntimeError) as caught:
                self.switch.push(device_config=broken)
            self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")
            self.assertIn("p4_device_config", caught.exception.text)
        self.unharmed()


class PacketsOutThatAreNone(RefusalTest):
    """Packet-outs with wrong metadata come back as stream errors; too short ones are dropped."""

    def runTest(self) -> None:
        message = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=udp_frame()))
        message.packet.metadata.add(metadata_id=99, value=b"\x01")
        self.switch.outgoing.put(message)
        if not self.on_bmv2:
            error = self.switch.stream_errors.get(timeout=COMES_SECONDS)
            self.assertEqual(error.canonical_code, 3, error.message)  # INVALID_ARGUMENT
            self.assertIn("99", error.message)
        self.switch.packet_out(b"\x02", egress_port=0, pad=0)
        self.nothing_comes()
        self.unharmed()


class RatesAtTheEdge(RefusalTest):
    """The slowest and the fastest rate of the contract are accepted unchanged."""

    def runTest(self) -> None:
        for class_id, rate_bps in ((100, 8_000), (101, 100_000_000_000)):
            self.install(self.paced(class_id, rate_bps))
        self.assertEqual(time_per_byte_q24(500_000_000), 16 << 24)
        self.switch.delete(self.paced(100, 8_000), self.paced(101, 100_000_000_000))
        self.unharmed()
