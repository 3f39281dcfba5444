"""An oracle for P4Runtime writes: the answers that the specification allows, and correct reads.

`Oracle.answers` returns the codes of all rules that an update breaks; an empty set means that the
update must be accepted. The specification does not say which of several broken rules is reported,
so a server may answer with any of them. `Oracle.accept` then makes the change. It is one plain
dictionary for each kind of object, so that it is easy to see that it is right.

Source: P4Runtime Specification 1.4, sections "TableEntry", "ActionProfileMember &
ActionProfileGroup", "PacketReplicationEngineEntry", "ValueSetEntry", "RegisterEntry". Where the
specification leaves a choice, docs/p4runtime.md ("Choices") has this switch's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from finsy.proto import p4i, p4r
from grpc import StatusCode

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE

INVALID = StatusCode.INVALID_ARGUMENT
UNKNOWN_OBJECT = StatusCode.NOT_FOUND
EXISTS = StatusCode.ALREADY_EXISTS
FULL = StatusCode.RESOURCE_EXHAUSTED
FORBIDDEN = StatusCode.PERMISSION_DENIED
IN_USE = StatusCode.FAILED_PRECONDITION
OUT_OF_RANGE = StatusCode.OUT_OF_RANGE

Codes = set[StatusCode]
Key = tuple[Any, ...]
_Info = TypeVar("_Info")

METADATA_BYTES = 1024
GROUP_MAX = 65_535
SESSION_MAX = 32_767
INSTANCE_MAX = 65_535
CLASS_OF_SERVICE_MAX = 255


class RefusedError(Exception):
    """A part of an update that breaks a rule."""

    def __init__(self, code: StatusCode) -> None:
        super().__init__(code.name)
        self.code = code


def number(value: bytes, bits: int, wrong: StatusCode = INVALID) -> int:
    """Return an unsigned value of a byte string (section "Bytestrings")."""
    if not value or int.from_bytes(value, "big") >> bits:
        raise RefusedError(wrong)
    return int.from_bytes(value, "big")


def canonical(value: int) -> bytes:
    """Return the shortest byte string of a value."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class Oracle:
    """The objects of a switch that runs one program, as a controller has written them."""

    def __init__(self, p4info: p4i.P4Info, ports: Iterable[int], at_first: Iterable[p4r.Entity]):
        """Take a program, the switch's ports, and the switch's entities at the program's start."""
        self._tables = {table.preamble.id: table for table in p4info.tables}
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self._profiles = {profile.preamble.id: profile for profile in p4info.action_profiles}
        self._registers = {register.preamble.id: register for register in p4info.registers}
        self._value_sets = {each.preamble.id: each for each in p4info.value_sets}
        self._counted = {each.direct_table_id for each in p4info.direct_counters}
        self._metered = {each.direct_table_id for each in p4info.direct_meters}
        self._ports = set(ports)
        self.objects: dict[Key, p4r.Entity] = {}
        for entity in at_first:
            self.objects[self._key(entity)] = self._kept(entity)
        self._defaults = self.snapshot()

    # ---- answers of a server ----------------------------------------------------------------

    def answers(self, update: p4r.Update) -> Codes:
        """Return the codes that the update may be refused with; empty: it must be accepted."""
        kind = update.entity.WhichOneof("entity")
        if update.type not in (INSERT, MODIFY, DELETE) or kind is None:
            return {INVALID}
        codes: Codes = set()
        checks = getattr(self, f"_check_{kind}")(update.type, getattr(update.entity, kind))
        while True:
            try:
                check = next(checks, None)
                if check is None:
                    return codes
                check()
            except RefusedError as error:
                codes.add(error.code)

    def _must(self, holds: bool, code: StatusCode = INVALID) -> None:
        if not holds:
            raise RefusedError(code)

    def _named(self, objects: Mapping[int, _Info], number_of: int) -> _Info:
        """Return what P4Info says of an object. Nothing else is checked of one that it has not."""
        self._must(number_of in objects, INVALID if number_of == 0 else UNKNOWN_OBJECT)
        return objects[number_of]

    def _exists(self, change: int, key: Any) -> None:
        """An object that is inserted must be new; one that is changed must be there."""
        found = key() in self.objects
        if change == INSERT:
            self._must(not found, EXISTS)
        else:
            self._must(found, UNKNOWN_OBJECT)

    # ---- tables -----------------------------------------------------------------------------

    def _check_table_entry(self, change: int, entry: p4r.TableEntry) -> Iterator[Any]:
        table = self._named(self._tables, entry.table_id)
        yield lambda: self._must(not entry.is_const)
        if entry.is_default_action:
            yield from self._check_default(change, table, entry)
            return
        yield lambda: self._must(len(table.match_fields) > 0)
        constant = table.is_const_table
        yield lambda: self._must(not constant or change == MODIFY, FORBIDDEN)
        yield lambda: self._exists(change, lambda: self._entry_key(entry))
        if change == DELETE:
            return
        if change == INSERT:
            yield lambda: self._must(self._count("entry", entry.table_id) < table.size, FULL)
            yield lambda: self._must(entry.HasField("action"))
        timed = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        yield lambda: self._must(entry.idle_timeout_ns >= 0 if timed else not entry.idle_timeout_ns)
        yield lambda: self._must(not entry.HasField("time_since_last_hit"))
        yield lambda: self._must(len(entry.metadata) <= METADATA_BYTES, FULL)
        yield lambda: self._direct(table, entry)
        if entry.HasField("action"):
            yield lambda: self._must(not constant, FORBIDDEN)
            yield from self._check_entry_action(change, table, entry)

    def _check_default(self, change: int, table: p4i.Table, entry: p4r.TableEntry) -> Iterator[Any]:
        yield lambda: self._must(change == MODIFY)
        yield lambda: self._must(not entry.match and not entry.priority)
        yield lambda: self._must(not entry.idle_timeout_ns)
        yield lambda: self._must(not entry.HasField("time_since_last_hit"))
        constant = table.const_default_action_id or table.implementation_id
        yield lambda: self._must(not constant, FORBIDDEN)
        yield lambda: self._direct(table, entry)
        # An update without an action resets the entry and its metadata, with any other fields.
        if entry.HasField("action"):
            yield lambda: self._must(len(entry.metadata) <= METADATA_BYTES, FULL)
            yield lambda: self._must(entry.action.WhichOneof("type") == "action")
            yield from self._check_call(table, entry.action.action, p4i.ActionRef.TABLE_ONLY)

    def _direct(self, table: p4i.Table, entry: p4r.TableEntry) -> None:
        number_of = table.preamble.id
        counted = number_of in self._counted
        self._must(counted or not entry.HasField("counter_data"))
        self._must(entry.counter_data.packet_count >= 0 and entry.counter_data.byte_count >= 0)
        self._must(number_of in self._metered or not entry.HasField("meter_config"))
        config = entry.meter_config
        self._must(min(config.cir, config.cburst, config.pir, config.pburst) >= 0)
        self._must(config.pir >= config.cir)

    def _entry_key(self, entry: p4r.TableEntry) -> Key:
        table = self._tables[entry.table_id]
        kinds = {field.match_type for field in table.match_fields}
        ordered = kinds & {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL}
        self._must(entry.priority > 0 if ordered else entry.priority == 0)
        match = self._match(table.match_fields, entry.match)
        return ("entry", entry.table_id, match, entry.priority)

    def _match(
        self, fields: Iterable[p4i.MatchField], given: Iterable[p4r.FieldMatch]
    ) -> tuple[Any, ...]:
        by_id = {field.id: field for field in fields}
        found: dict[int, tuple[int, ...]] = {}
        for each in given:
            self._must(each.field_id in by_id and each.field_id not in found)
            found[each.field_id] = self._field(by_id[each.field_id], each)
        exact = {id_ for id_, f in by_id.items() if f.match_type == p4i.MatchField.EXACT}
        self._must(exact <= set(found))
        return tuple(sorted(found.items()))

    def _field(self, field: p4i.MatchField, given: p4r.FieldMatch) -> tuple[int, ...]:
        kind, bits = given.WhichOneof("field_match_type"), field.bitwidth
        self._must(kind is not None and kind == _MATCHES[field.match_type])
        every = (1 << bits) - 1
        if kind in ("exact", "optional"):
            return (number(getattr(given, kind).value, bits),)
        if kind == "range":
            low, high = number(given.range.low, bits), number(given.range.high, bits)
            self._must(low <= high and (low, high) != (0, every))
            return (low, high)
        if kind == "ternary":
            value, mask = number(given.ternary.value, bits), number(given.ternary.mask, bits)
        else:
            value, length = number(given.lpm.value, bits), given.lpm.prefix_len
            self._must(0 < length <= bits)
            mask = every ^ (every >> length)
        self._must(mask != 0 and not value & ~mask)
        return (value, mask)

    # ---- actions ----------------------------------------------------------------------------

    def _check_call(self, table: p4i.Table, action: p4r.Action, never: int) -> Iterator[Any]:
        """Check an action of a table, whose scope must not be `never`."""
        refs = {ref.id: ref.scope for ref in table.action_refs}
        if action.action_id not in refs:
            yield lambda: self._must(False)
            return
        yield lambda: self._must(refs[action.action_id] != never, FORBIDDEN)
        widths = {param.id: param.bitwidth for param in self._actions[action.action_id].params}
        given = [param.param_id for param in action.params]
        yield lambda: self._must(sorted(given) == sorted(widths))
        for param in action.params:
            yield lambda param=param: number(param.value, widths.get(param.param_id, 0))

    def _check_entry_action(
        self, change: int, table: p4i.Table, entry: p4r.TableEntry
    ) -> Iterator[Any]:
        kind = entry.action.WhichOneof("type")
        never = p4i.ActionRef.DEFAULT_ONLY
        profile = self._profiles.get(table.implementation_id)
        if kind is None or (profile is None) != (kind == "action"):
            yield lambda: self._must(False)
        elif profile is None:
            yield from self._check_call(table, entry.action.action, never)
        elif kind == "action_profile_member_id":
            member = ("member", profile.preamble.id, entry.action.action_profile_member_id)
            yield lambda: self._must(member[2] != 0)
            yield lambda: self._must(member in self.objects, UNKNOWN_OBJECT)
            yield lambda: self._must(not self._one_shots(profile.preamble.id))
        elif not profile.with_selector:
            yield lambda: self._must(False)
        elif kind == "action_profile_group_id":
            group = ("group", profile.preamble.id, entry.action.action_profile_group_id)
            yield lambda: self._must(group[2] != 0)
            yield lambda: self._must(group in self.objects, UNKNOWN_OBJECT)
        else:
            yield from self._check_one_shot(change, table, profile, entry)

    def _check_one_shot(
        self, change: int, table: p4i.Table, profile: p4i.ActionProfile, entry: p4r.TableEntry
    ) -> Iterator[Any]:
        """Section "One Shot Action Selector Programming"."""
        actions = entry.action.action_profile_action_set.action_profile_actions
        number_of = profile.preamble.id
        size = sum(max(0, each.weight) for each in actions)
        yield lambda: self._must(all(each.weight > 0 for each in actions))
        yield lambda: self._must(size <= profile.max_group_size)
        yield lambda: self._watch(each for each in actions)
        for each in actions:
            yield from self._check_call(table, each.action, p4i.ActionRef.DEFAULT_ONLY)
        yield lambda: self._must(
            not self._count("member", number_of) and not self._count("group", number_of)
        )

        def room() -> None:
            key = self._entry_key(entry)
            # An entry that is inserted again counts beside itself.
            others = self._weights(number_of, without=() if change == INSERT else key)
            self._must(others + size <= profile.size, FULL)

        yield room

    def _watch(self, watching: Iterable[Any]) -> None:
        for each in watching:
            kind = each.WhichOneof("watch_kind")
            if kind == "watch_port":
                self._must(number(each.watch_port, 32) in self._ports)
            elif kind == "watch":
                self._must(each.watch in self._ports)

    def _one_shots(self, profile: int) -> list[p4r.TableEntry]:
        entries = [one.table_entry for key, one in self.objects.items() if key[0] == "entry"]
        return [
            entry
            for entry in entries
            if entry.action.WhichOneof("type") == "action_profile_action_set"
            and self._tables[entry.table_id].implementation_id == profile
        ]

    def _weights(self, profile: int, without: Key) -> int:
        """Return the weights of all groups and one-shot sets of a profile but one."""
        total = 0
        for key, entity in self.objects.items():
            if key == without:
                continue
            if key[:2] == ("group", profile):
                total += sum(each.weight for each in entity.action_profile_group.members)
            elif key[0] == "entry" and self._tables[key[1]].implementation_id == profile:
                chosen = entity.table_entry.action.action_profile_action_set
                total += sum(each.weight for each in chosen.action_profile_actions)
        return total

    def _check_action_profile_member(
        self, change: int, given: p4r.ActionProfileMember
    ) -> Iterator[Any]:
        number_of = given.action_profile_id
        profile = self._named(self._profiles, number_of)
        key = ("member", number_of, given.member_id)
        yield lambda: self._must(given.member_id != 0)
        yield lambda: self._exists(change, lambda: key)
        if change == DELETE:
            yield lambda: self._must(not self._uses_of_member(key), IN_USE)
            return
        table = self._tables[profile.table_ids[0]]
        yield lambda: self._must(given.HasField("action"))
        yield from self._check_call(table, given.action, p4i.ActionRef.DEFAULT_ONLY)
        yield lambda: self._must(not self._one_shots(number_of))
        if change == INSERT and not profile.with_selector:
            yield lambda: self._must(self._count("member", number_of) < profile.size, FULL)

    def _uses_of_member(self, member: Key) -> bool:
        _, profile, number_of = member
        for key, entity in self.objects.items():
            if key[:2] == ("group", profile):
                members = entity.action_profile_group.members
                if number_of in [each.member_id for each in members]:
                    return True
            if key[0] == "entry" and self._tables[key[1]].implementation_id == profile:
                action = entity.table_entry.action
                if action.action_profile_member_id == number_of:
                    return True
        return False

    def _check_action_profile_group(
        self, change: int, given: p4r.ActionProfileGroup
    ) -> Iterator[Any]:
        number_of = given.action_profile_id
        profile = self._named(self._profiles, number_of)
        key = ("group", number_of, given.group_id)
        yield lambda: self._must(profile.with_selector)
        yield lambda: self._must(given.group_id != 0)
        yield lambda: self._exists(change, lambda: key)
        if change == DELETE:
            yield lambda: self._must(not self._uses_of_group(key), IN_USE)
            return
        yield lambda: self._must(not self._one_shots(number_of))
        yield lambda: self._must(0 < given.max_size <= profile.max_group_size)
        if change == MODIFY and key in self.objects:
            before = self.objects[key].action_profile_group.max_size
            yield lambda: self._must(given.max_size == before)
        members = [each.member_id for each in given.members]
        yield lambda: self._must(len(set(members)) == len(members))
        yield lambda: self._must(all(each.weight > 0 for each in given.members))
        yield lambda: self._watch(given.members)
        for member in members:
            found = ("member", number_of, member) in self.objects
            yield lambda found=found: self._must(found, UNKNOWN_OBJECT)
        size = sum(max(0, each.weight) for each in given.members)
        yield lambda: self._must(size <= given.max_size, FULL)
        others = self._weights(number_of, without=key)
        yield lambda: self._must(others + size <= profile.size, FULL)

    def _uses_of_group(self, group: Key) -> bool:
        return any(
            self._tables[key[1]].implementation_id == group[1]
            and entity.table_entry.action.action_profile_group_id == group[2]
            for key, entity in self.objects.items()
            if key[0] == "entry"
        )

    # ---- replication ------------------------------------------------------------------------

    def _check_packet_replication_engine_entry(
        self, change: int, given: p4r.PacketReplicationEngineEntry
    ) -> Iterator[Any]:
        kind = given.WhichOneof("type")
        if kind is None:
            yield lambda: self._must(False)
            return
        if kind == "multicast_group_entry":
            group = given.multicast_group_entry
            key: Key = ("multicast", group.multicast_group_id)
            replicas = group.replicas
            yield lambda: self._must(0 < group.multicast_group_id <= GROUP_MAX)
        else:
            session = given.clone_session_entry
            key = ("session", session.session_id)
            replicas = session.replicas
            yield lambda: self._must(0 < session.session_id <= SESSION_MAX)
        yield lambda: self._exists(change, lambda: key)
        if change == DELETE:
            return
        yield lambda: self._replicas(replicas)
        if kind == "multicast_group_entry":
            yield lambda: self._must(len(group.metadata) <= METADATA_BYTES, FULL)
        else:
            yield lambda: self._must(session.class_of_service <= CLASS_OF_SERVICE_MAX)
            yield lambda: self._must(session.packet_length_bytes >= 0)

    def _replicas(self, replicas: Iterable[p4r.Replica]) -> None:
        seen = set()
        for replica in replicas:
            if replica.WhichOneof("port_kind") == "port":
                port = number(replica.port, 32)
            else:
                port = replica.egress_port
            self._must(port in self._ports and replica.instance <= INSTANCE_MAX)
            self._must((port, replica.instance) not in seen)
            seen.add((port, replica.instance))

    # ---- value sets and registers -----------------------------------------------------------

    def _check_value_set_entry(self, change: int, given: p4r.ValueSetEntry) -> Iterator[Any]:
        number_of = given.value_set_id
        found = self._named(self._value_sets, number_of)
        yield lambda: self._must(change == MODIFY)
        yield lambda: self._must(len(given.members) <= found.size, FULL)
        for member in given.members:
            yield lambda member=member: self._match(found.match, member.match)

        # A server may look for equal members before or after it has read them all.
        readable = []
        for member in given.members:
            with contextlib.suppress(RefusedError):
                readable.append(self._match(found.match, member.match))
        as_given = [member.SerializeToString(deterministic=True) for member in given.members]
        yield lambda: self._must(len(set(readable)) == len(readable), EXISTS)
        yield lambda: self._must(len(set(as_given)) == len(as_given), EXISTS)

    def _check_register_entry(self, change: int, given: p4r.RegisterEntry) -> Iterator[Any]:
        number_of = given.register_id
        register = self._named(self._registers, number_of)
        yield lambda: self._must(change == MODIFY)
        yield lambda: self._must(given.index.index >= 0)
        yield lambda: self._must(given.index.index < register.size, OUT_OF_RANGE)
        yield lambda: self._must(given.data.WhichOneof("data") == "bitstring")
        bits = register.type_spec.bitstring.bit.bitwidth
        if given.data.WhichOneof("data") == "bitstring":
            yield lambda: number(given.data.bitstring, bits, OUT_OF_RANGE)

    # ---- reads of a controller --------------------------------------------------------------

    def accept(self, update: p4r.Update) -> None:
        """Make the change of an update that `answers` has nothing against."""
        key = self._key(update.entity)
        if key[0] == "default":
            self._set_default(key, update.entity.table_entry)
        elif update.type == DELETE:
            del self.objects[key]
        elif update.type == MODIFY and key[0] == "entry":
            self._modify(self.objects[key].table_entry, update.entity.table_entry)
        else:
            self.objects[key] = self._kept(update.entity)

    def _modify(self, entry: p4r.TableEntry, written: p4r.TableEntry) -> None:
        """The action and the counter stay when they are not given. All else is replaced."""
        given = self._kept_entry(written)
        if given.HasField("action"):
            entry.action.CopyFrom(given.action)
        if written.HasField("counter_data"):
            entry.counter_data.CopyFrom(given.counter_data)
        entry.ClearField("meter_config")
        if given.HasField("meter_config"):
            entry.meter_config.CopyFrom(given.meter_config)
        entry.idle_timeout_ns = given.idle_timeout_ns
        entry.controller_metadata = given.controller_metadata
        entry.metadata = given.metadata

    def _set_default(self, key: Key, given: p4r.TableEntry) -> None:
        entity = self.objects[key]
        if given.HasField("action"):
            self._modify(entity.table_entry, given)
            return
        # A reset. The values of the update apply after it.
        entity.CopyFrom(self._defaults[key])
        kept = self._kept_entry(given)
        for field in ("counter_data", "meter_config"):
            entity.table_entry.ClearField(field)
            if kept.HasField(field):
                getattr(entity.table_entry, field).CopyFrom(getattr(kept, field))

    def snapshot(self) -> dict[Key, p4r.Entity]:
        """Return a copy of all objects."""
        copies = {}
        for key, entity in self.objects.items():
            copies[key] = p4r.Entity()
            copies[key].CopyFrom(entity)
        return copies

    def restore(self, objects: dict[Key, p4r.Entity]) -> None:
        """Have these objects and no others."""
        self.objects = dict(objects)

    def _count(self, kind: str, owner: int) -> int:
        return sum(1 for key in self.objects if key[:2] == (kind, owner))

    def _key(self, entity: p4r.Entity) -> Key:
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            entry = entity.table_entry
            if entry.is_default_action:
                return ("default", entry.table_id)
            return self._entry_key(entry)
        if kind == "action_profile_member":
            member = entity.action_profile_member
            return ("member", member.action_profile_id, member.member_id)
        if kind == "action_profile_group":
            group = entity.action_profile_group
            return ("group", group.action_profile_id, group.group_id)
        if kind == "packet_replication_engine_entry":
            replication = entity.packet_replication_engine_entry
            if replication.WhichOneof("type") == "multicast_group_entry":
                return ("multicast", replication.multicast_group_entry.multicast_group_id)
            return ("session", replication.clone_session_entry.session_id)
        if kind == "value_set_entry":
            return ("value set", entity.value_set_entry.value_set_id)
        assert kind == "register_entry"
        return ("register", entity.register_entry.register_id, entity.register_entry.index.index)

    def _kept(self, entity: p4r.Entity) -> p4r.Entity:
        """Return an entity in the form of a read: canonical byte strings, fields in order."""
        kept = p4r.Entity()
        kept.CopyFrom(entity)
        kind = kept.WhichOneof("entity")
        if kind == "table_entry":
            kept.table_entry.CopyFrom(self._kept_entry(entity.table_entry))
        elif kind == "action_profile_member":
            _canonical_action(kept.action_profile_member.action)
        elif kind == "action_profile_group":
            for member in kept.action_profile_group.members:
                _canonical_watch(member)
            _sort(kept.action_profile_group.members, lambda member: member.member_id)
        elif kind == "packet_replication_engine_entry":
            replication = kept.packet_replication_engine_entry
            form: Any = getattr(replication, replication.WhichOneof("type") or "")
            for replica in form.replicas:
                if replica.WhichOneof("port_kind") == "port":
                    replica.port = _shortest(replica.port)
        elif kind == "value_set_entry":
            for value in kept.value_set_entry.members:
                _canonical_match(value.match)
            _sort(kept.value_set_entry.members, lambda value: value.SerializeToString())
        else:
            kept.register_entry.data.bitstring = _shortest(kept.register_entry.data.bitstring)
        return kept

    def _kept_entry(self, given: p4r.TableEntry) -> p4r.TableEntry:
        kept = p4r.TableEntry()
        kept.CopyFrom(given)
        _canonical_match(kept.match)
        kind = kept.action.WhichOneof("type")
        if kind == "action":
            _canonical_action(kept.action.action)
        elif kind == "action_profile_action_set":
            for each in kept.action.action_profile_action_set.action_profile_actions:
                _canonical_action(each.action)
                _canonical_watch(each)
        # A read that asks for counters has them for every entry.
        if kept.table_id in self._counted:
            kept.counter_data.SetInParent()
        kept.is_const = False
        return kept

    def read(self, entities: Iterable[p4r.Entity]) -> dict[Key, p4r.Entity]:
        """Return a switch's entities in the form of `objects`; each object may come once."""
        found: dict[Key, p4r.Entity] = {}
        for entity in entities:
            key = self._key(entity)
            assert key not in found, f"{key} was read twice"
            found[key] = self._kept(entity)
        return found


_MATCHES = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}


def _shortest(value: bytes) -> bytes:
    return canonical(int.from_bytes(value, "big"))


def _sort(repeated: Any, order: Any) -> None:
    ordered = sorted(repeated, key=order)
    copies = [type(each).FromString(each.SerializeToString()) for each in ordered]
    del repeated[:]
    repeated.extend(copies)


def _canonical_match(match: Any) -> None:
    for field in match:
        form = getattr(field, field.WhichOneof("field_match_type"))
        for name in ("value", "mask", "low", "high"):
            if name in form.DESCRIPTOR.fields_by_name:
                setattr(form, name, _shortest(getattr(form, name)))
    _sort(match, lambda field: field.field_id)


def _canonical_action(action: p4r.Action) -> None:
    for param in action.params:
        param.value = _shortest(param.value)
    _sort(action.params, lambda param: param.param_id)


def _canonical_watch(watching: Any) -> None:
    if watching.WhichOneof("watch_kind") == "watch_port":
        watching.watch_port = _shortest(watching.watch_port)
