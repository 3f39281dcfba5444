"""A small synchronous P4Runtime client that names objects as the P4 program does.

Blocking calls suit tests, where one thing happens after another. The protocol's messages come
from finsy, which the controller uses too; its client is asynchronous, PTF is not.

Source: P4Runtime Specification 1.4 (arbitration 5, canonical byte strings 8.4, entities 9,
batches and errors 12).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

# Longest wait for an answer; a switch that takes longer is taken for dead.
ANSWER_SECONDS = 60.0
# Greatest message: gtrcnet's registers are read in one answer of some 20 MB.
MESSAGE_BYTES = 256 << 20

# A ternary field: value and mask; an exact field: value alone.
Match = Mapping[str, "int | tuple[int, int]"]


class P4RuntimeError(Exception):
    """A refused request.

    `code` is the canonical gRPC code of the refusal: of the first failed update where the
    server says so, else of the call. `text` is everything the server said, for messages.
    """

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text


def canonical(value: int) -> bytes:
    """Shortest big-endian form, at least one byte (specification 8.4)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def refusal(error: grpc.RpcError) -> P4RuntimeError:
    """The message of a failed call, with the details of its updates."""
    code: grpc.StatusCode = error.code()
    texts = [error.details() or ""]
    by_number = {status.value[0]: status for status in grpc.StatusCode}
    # Pairs of key and value, which the stubs of grpc do not know.
    trailing: Any = error.trailing_metadata() or ()
    for key, value in trailing:
        if key != "grpc-status-details-bin":
            continue
        status = rpc_status.Status()
        status.ParseFromString(value)
        for detail in status.details:
            update = p4r.Error()
            if detail.Unpack(update) and update.canonical_code != 0:
                if code is grpc.StatusCode.UNKNOWN:
                    code = by_number.get(update.canonical_code, code)
                texts.append(update.message)
    return P4RuntimeError(code, "; ".join(text for text in texts if text))


def key_of(entry: p4r.TableEntry) -> p4r.TableEntry:
    """The identity of an entry: table, match in order of its fields, priority."""
    key = p4r.TableEntry(table_id=entry.table_id, priority=entry.priority)
    key.match.extend(sorted(entry.match, key=lambda field: field.field_id))
    return key


@dataclass(frozen=True)
class Rates:
    """A two-rate three-colour marker (RFC 2698); rates per second, bursts, all in bytes."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True)
class Count:
    """Reading of a counter."""

    packets: int
    bytes: int


class Program:
    """A compiled P4 program: the config to push to a switch, and the ids of its objects."""

    def __init__(self, p4info_file: Path, device_config_file: Path) -> None:
        """Reads p4c's output."""
        self.p4info = p4i.P4Info()
        text_format.Parse(p4info_file.read_text(), self.p4info)
        self.device_config = device_config_file.read_bytes()

    def table(self, name: str) -> p4i.Table:
        """Table of this full name, else KeyError."""
        for table in self.p4info.tables:
            if table.preamble.name == name:
                return table
        raise KeyError(f"no table {name}")

    def action(self, name: str) -> p4i.Action:
        """Action of this full name, else KeyError."""
        for action in self.p4info.actions:
            if action.preamble.name == name:
                return action
        raise KeyError(f"no action {name}")

    def counter_id(self, name: str) -> int:
        """Id of an indirect counter, else KeyError."""
        for counter in self.p4info.counters:
            if counter.preamble.name == name:
                return counter.preamble.id
        raise KeyError(f"no counter {name}")

    def register_id(self, name: str) -> int:
        """Id of a register, else KeyError."""
        for register in self.p4info.registers:
            if register.preamble.name == name:
                return register.preamble.id
        raise KeyError(f"no register {name}")

    def metadata(self, header: str) -> dict[str, int]:
        """Field name to id of a controller header (`packet_in`, `packet_out`)."""
        for found in self.p4info.controller_packet_metadata:
            if found.preamble.name == header:
                return {field.name: field.id for field in found.metadata}
        raise KeyError(f"no controller header {header}")


class Client:
    """One connection to one switch."""

    def __init__(self, address: str, device_id: int, program: Program):
        """Connects and opens the stream; `become_primary` is a step of its own.

        A client made later has a higher election id.
        """
        self.program = program
        self.device_id = device_id
        # A server remembers the highest id it has seen, after its owner has gone too
        # (specification 5.3): the time makes each client's id higher than all before.
        self.election_id = p4r.Uint128(high=0, low=time.time_ns())
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                # One connection each: tests play several controllers from one process.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.outgoing: queue.Queue[p4r.StreamMessageRequest | None] = queue.Queue()
        self.arbitrations: queue.Queue[p4r.MasterArbitrationUpdate] = queue.Queue()
        self.packets: queue.Queue[p4r.PacketIn] = queue.Queue()
        self.stream_errors: queue.Queue[p4r.StreamError] = queue.Queue()
        self.stream = self.stub.StreamChannel(iter(self.outgoing.get, None))
        self.reader = threading.Thread(target=self._read_stream, daemon=True)
        self.reader.start()

    def _read_stream(self) -> None:
        try:
            for message in self.stream:
                kind = message.WhichOneof("update")
                if kind == "arbitration":
                    self.arbitrations.put(message.arbitration)
                elif kind == "packet":
                    self.packets.put(message.packet)
                elif kind == "error":
                    self.stream_errors.put(message.error)
        except grpc.RpcError:
            # The stream has ended; a caller that waits on a queue gets a timeout.
            return

    def close(self) -> None:
        """Ends the stream and the connection."""
        self.outgoing.put(None)
        self.stream.cancel()
        self.reader.join(ANSWER_SECONDS)
        self.channel.close()

    def become_primary(self) -> int:
        """Asks for the primary role; returns the canonical code of the answer, 0 for yes."""
        self.outgoing.put(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(
                    device_id=self.device_id, election_id=self.election_id
                )
            )
        )
        return self.arbitrations.get(timeout=ANSWER_SECONDS).status.code

    def push(self, device_config: bytes | None = None) -> None:
        """Pushes the program; the switch starts from empty tables and zeroed state."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            election_id=self.election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.config.p4info.CopyFrom(self.program.p4info)
        request.config.p4_device_config = (
            self.program.device_config if device_config is None else device_config
        )
        try:
            self.stub.SetForwardingPipelineConfig(request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise refusal(error) from None

    # Building entities -----------------------------------------------------------------

    def action(self, name: str, params: Mapping[str, int]) -> p4r.TableAction:
        """An action with its parameters by name."""
        info = self.program.action(name)
        ids = {param.name: param.id for param in info.params}
        made = p4r.TableAction()
        made.action.action_id = info.preamble.id
        for param, value in params.items():
            made.action.params.add(param_id=ids[param], value=canonical(value))
        return made

    def entry(
        self,
        table: str,
        match: Match,
        action: str | None = None,
        params: Mapping[str, int] | None = None,
        priority: int = 0,
        rates: Rates | None = None,
    ) -> p4r.Entity:
        """A table entry; fields that are not given match everything, except exact ones.

        A ternary field is a value or (value, mask), an LPM field (value, prefix length).
        """
        info = self.program.table(table)
        made = p4r.Entity()
        made.table_entry.table_id = info.preamble.id
        made.table_entry.priority = priority
        fields = {field.name: field for field in info.match_fields}
        for name, wanted in match.items():
            field = made.table_entry.match.add(field_id=fields[name].id)
            if fields[name].match_type == p4i.MatchField.TERNARY:
                full = (1 << fields[name].bitwidth) - 1
                value, mask = wanted if isinstance(wanted, tuple) else (wanted, full)
                field.ternary.value = canonical(value)
                field.ternary.mask = canonical(mask)
            elif fields[name].match_type == p4i.MatchField.LPM:
                if not isinstance(wanted, tuple):
                    raise TypeError(f"{table}: {name} needs a value and a prefix length")
                field.lpm.value = canonical(wanted[0])
                field.lpm.prefix_len = wanted[1]
            else:
                if isinstance(wanted, tuple):
                    raise TypeError(f"{table}: {name} is matched exactly, no mask")
                field.exact.value = canonical(wanted)
        if action is not None:
            made.table_entry.action.CopyFrom(self.action(action, params or {}))
        if rates is not None:
            made.table_entry.meter_config.CopyFrom(
                p4r.MeterConfig(
                    cir=rates.cir, cburst=rates.cburst, pir=rates.pir, pburst=rates.pburst
                )
            )
        return made

    @staticmethod
    def multicast_group(group: int, ports: Iterable[int]) -> p4r.Entity:
        """A multicast group with one copy per port."""
        made = p4r.Entity()
        entry = made.packet_replication_engine_entry.multicast_group_entry
        entry.multicast_group_id = group
        for instance, port in enumerate(ports, start=1):
            entry.replicas.add(egress_port=port, instance=instance)
        return made

    # Writing ---------------------------------------------------------------------------

    def write(self, *updates: p4r.Update) -> None:
        """Sends updates as one batch (continue on error)."""
        request = p4r.WriteRequest(
            device_id=self.device_id, election_id=self.election_id, updates=updates
        )
        try:
            self.stub.Write(request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise refusal(error) from None

    def insert(self, *entities: p4r.Entity) -> None:
        """Inserts."""
        self.write(*(p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities))

    def modify(self, *entities: p4r.Entity) -> None:
        """Modifies."""
        self.write(*(p4r.Update(type=p4r.Update.MODIFY, entity=entity) for entity in entities))

    def delete(self, *entities: p4r.Entity) -> None:
        """Deletes."""
        self.write(*(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in entities))

    # Reading ---------------------------------------------------------------------------

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """Reads everything that the patterns match."""
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        try:
            answers: Iterator[p4r.ReadResponse] = self.stub.Read(request, timeout=ANSWER_SECONDS)
            return [entity for answer in answers for entity in answer.entities]
        except grpc.RpcError as error:
            raise refusal(error) from None

    def entries(self, table: str) -> list[p4r.TableEntry]:
        """All entries of a table."""
        pattern = p4r.Entity()
        pattern.table_entry.table_id = self.program.table(table).preamble.id
        return [entity.table_entry for entity in self.read(pattern)]

    def counter(self, name: str, index: int) -> Count:
        """One cell of an indirect counter."""
        pattern = p4r.Entity()
        pattern.counter_entry.counter_id = self.program.counter_id(name)
        pattern.counter_entry.index.index = index
        (found,) = self.read(pattern)
        data = found.counter_entry.data
        return Count(data.packet_count, data.byte_count)

    def direct_counter(self, entry: p4r.Entity) -> Count:
        """The direct counter of one table entry."""
        pattern = p4r.Entity()
        pattern.direct_counter_entry.table_entry.CopyFrom(key_of(entry.table_entry))
        data = self._of_entry(pattern).direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)

    def direct_meter(self, entry: p4r.Entity) -> Rates:
        """The direct meter's rates of one table entry."""
        pattern = p4r.Entity()
        pattern.direct_meter_entry.table_entry.CopyFrom(key_of(entry.table_entry))
        config = self._of_entry(pattern).direct_meter_entry.config
        return Rates(config.cir, config.cburst, config.pir, config.pburst)

    def _of_entry(self, pattern: p4r.Entity) -> p4r.Entity:
        """The one answer about exactly this table entry.

        An entry that matches everything has an empty match, which in a read asks for all
        entries (specification 9.1): the answers are sorted out here.
        """
        kind = pattern.WhichOneof("entity")
        assert kind is not None
        wanted = key_of(getattr(pattern, kind).table_entry)
        found = [
            entity
            for entity in self.read(pattern)
            if key_of(getattr(entity, kind).table_entry) == wanted
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} answers about {wanted}")
        return found[0]

    def register(self, name: str, index: int) -> int:
        """One cell of a register."""
        pattern = p4r.Entity()
        pattern.register_entry.register_id = self.program.register_id(name)
        pattern.register_entry.index.index = index
        (found,) = self.read(pattern)
        return int.from_bytes(found.register_entry.data.bitstring, "big")

    def registers(self, name: str) -> dict[int, int]:
        """All cells of a register, by index."""
        pattern = p4r.Entity()
        pattern.register_entry.register_id = self.program.register_id(name)
        return {
            entity.register_entry.index.index: int.from_bytes(
                entity.register_entry.data.bitstring, "big"
            )
            for entity in self.read(pattern)
        }

    # Packets ---------------------------------------------------------------------------

    def packet_out(self, payload: bytes, **metadata: int) -> None:
        """Sends a packet to the switch with the fields of `packet_out`."""
        ids = self.program.metadata("packet_out")
        packet = p4r.PacketOut(payload=payload)
        for name, value in metadata.items():
            packet.metadata.add(metadata_id=ids[name], value=canonical(value))
        self.outgoing.put(p4r.StreamMessageRequest(packet=packet))

    def packet_in(self, timeout_seconds: float) -> tuple[bytes, dict[str, int]] | None:
        """Next packet to the controller with the fields of `packet_in`; None if none comes."""
        try:
            packet = self.packets.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        names = {number: name for name, number in self.program.metadata("packet_in").items()}
        fields = {
            names[field.metadata_id]: int.from_bytes(field.value, "big")
            for field in packet.metadata
        }
        return packet.payload, fields
