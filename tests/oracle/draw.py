"""Draws P4Runtime updates: mostly right ones on few objects, so that they meet, and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from finsy.proto import p4i, p4r
from specified import DELETE, INSERT, MODIFY, canonical

WRONG = 0.2
"""Share of updates in which one thing is made wrong, or only another."""

VALUES = 5
"""Values of a match field or argument: so few that entries meet."""

NUMBERS = (1, 2, 3, 4, 5)
"""Members, groups, sessions. Number 0 and numbers that no object has are among the wrong ones."""

PORTS = (1, 2)
UNKNOWN_ID = 0x0123_4567
LONG_BYTES = 1025

_ODD_NUMBERS = (0, 1, 2, 3, 9, 255, 256, 511, 512, 32_767, 32_768, 65_535, 65_536, UNKNOWN_ID)
_ODD_BYTES = (b"", b"\0", b"\x01", b"\0\0\x01", b"\xff", b"\x01\xff", b"\x02\0", b"\xff" * 7)


class Draw:
    """Draws updates for a program."""

    def __init__(self, p4info: p4i.P4Info, draw: random.Random) -> None:
        """Take the program, and the only source of random choices."""
        self._draw = draw
        self._info = p4info
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self._counted = {each.direct_table_id for each in p4info.direct_counters}
        self._metered = {each.direct_table_id for each in p4info.direct_meters}
        self._makers: Sequence[tuple[int, Callable[[p4r.Entity], None]]] = (
            (10, self._entry),
            (2, self._default),
            (4, self._member),
            (4, self._group),
            (2, self._multicast),
            (2, self._session),
            (1, self._value_set),
            (1, self._register),
        )

    def update(self) -> p4r.Update:
        """Return the next update."""
        update = p4r.Update(type=self._draw.choices((INSERT, MODIFY, DELETE), (5, 3, 2))[0])
        weights = [weight for weight, _ in self._makers]
        _, make = self._draw.choices(self._makers, weights)[0]
        make(update.entity)
        kind = update.entity.WhichOneof("entity")
        if (
            kind in ("value_set_entry", "register_entry")
            or update.entity.table_entry.is_default_action
        ):
            update.type = MODIFY
        if self._draw.random() < WRONG:
            self._spoil(update)
        return update

    # ---- objects ----------------------------------------------------------------------------

    def _value(self, bits: int) -> bytes:
        value = canonical(self._draw.randrange(min(VALUES, 1 << bits)))
        return b"\0" * self._draw.choice((0, 0, 0, 1, 3)) + value

    def _fields(self, fields: Sequence[p4i.MatchField], match: Any) -> None:
        order = list(fields)
        self._draw.shuffle(order)
        for field in order:
            kind, bits = field.match_type, field.bitwidth
            if kind != p4i.MatchField.EXACT and self._draw.random() < 0.4:
                continue
            made = match.add(field_id=field.id)
            value = self._draw.randrange(1, min(VALUES, 1 << bits))
            if kind == p4i.MatchField.EXACT:
                made.exact.value = self._value(bits)
            elif kind == p4i.MatchField.OPTIONAL:
                made.optional.value = self._value(bits)
            elif kind == p4i.MatchField.TERNARY:
                mask = self._draw.choice((value, (1 << bits) - 1))
                made.ternary.value, made.ternary.mask = canonical(value), canonical(mask)
            elif kind == p4i.MatchField.LPM:
                made.lpm.prefix_len = self._draw.choice((bits, bits - 1, bits - 3))
                low = bits - made.lpm.prefix_len
                made.lpm.value = canonical(value >> low << low)
            else:
                made.range.low, made.range.high = self._value(bits), canonical(VALUES + value)

    def _call(self, refs: Sequence[p4i.ActionRef], scope: int, action: p4r.Action) -> None:
        allowed = [ref for ref in refs if ref.scope != scope]
        chosen = self._actions[self._draw.choice(allowed).id]
        action.action_id = chosen.preamble.id
        for param in chosen.params:
            action.params.add(param_id=param.id, value=self._value(param.bitwidth))

    def _rates(self, config: p4r.MeterConfig) -> None:
        config.cir, config.cburst = 1 + self._draw.randrange(VALUES), 1
        config.pir, config.pburst = config.cir + self._draw.randrange(VALUES), 1

    def _attached(self, entry: p4r.TableEntry) -> None:
        if self._draw.random() < 0.3:
            entry.metadata = self._value(8)
        if entry.table_id in self._counted and self._draw.random() < 0.3:
            entry.counter_data.packet_count = self._draw.randrange(VALUES)
        if entry.table_id in self._metered and self._draw.random() < 0.3:
            self._rates(entry.meter_config)

    def _entry(self, entity: p4r.Entity) -> None:
        table = self._draw.choice(self._info.tables)
        entry = entity.table_entry
        entry.table_id = table.preamble.id
        self._fields(table.match_fields, entry.match)
        kinds = {field.match_type for field in table.match_fields}
        if kinds - {p4i.MatchField.EXACT, p4i.MatchField.LPM}:
            entry.priority = self._draw.randint(1, 2)
        self._attached(entry)
        if table.idle_timeout_behavior and self._draw.random() < 0.3:
            # None of them ends before the test does.
            entry.idle_timeout_ns = 10**18 + self._draw.randrange(VALUES)
        if self._draw.random() < 0.1:
            return
        refs, scope = table.action_refs, p4i.ActionRef.DEFAULT_ONLY
        if not table.implementation_id:
            self._call(refs, scope, entry.action.action)
            return
        kind = self._draw.choice(("member", "group", "set"))
        if kind == "member":
            entry.action.action_profile_member_id = self._draw.choice(NUMBERS)
        elif kind == "group":
            entry.action.action_profile_group_id = self._draw.choice(NUMBERS)
        else:
            chosen = entry.action.action_profile_action_set
            for _ in range(self._draw.randint(1, 3)):
                each = chosen.action_profile_actions.add(weight=self._draw.randint(1, 3))
                self._call(refs, scope, each.action)
                self._watched(each)

    def _watched(self, each: Any) -> None:
        if self._draw.random() < 0.3:
            each.watch_port = canonical(self._draw.choice(PORTS))
        elif self._draw.random() < 0.2:
            each.watch = self._draw.choice(PORTS)

    def _default(self, entity: p4r.Entity) -> None:
        table = self._draw.choice(self._info.tables)
        entry = entity.table_entry
        entry.table_id = table.preamble.id
        entry.is_default_action = True
        self._attached(entry)
        if self._draw.random() < 0.8:
            self._call(table.action_refs, p4i.ActionRef.TABLE_ONLY, entry.action.action)

    def _profile(self) -> p4i.ActionProfile:
        found: p4i.ActionProfile = self._draw.choice(self._info.action_profiles)
        return found

    def _member(self, entity: p4r.Entity) -> None:
        profile, member = self._profile(), entity.action_profile_member
        member.action_profile_id = profile.preamble.id
        member.member_id = self._draw.choice(NUMBERS)
        tables = {table.preamble.id: table for table in self._info.tables}
        refs = tables[profile.table_ids[0]].action_refs
        self._call(refs, p4i.ActionRef.DEFAULT_ONLY, member.action)

    def _group(self, entity: p4r.Entity) -> None:
        profile, group = self._profile(), entity.action_profile_group
        group.action_profile_id = profile.preamble.id
        group.group_id = self._draw.choice(NUMBERS)
        group.max_size = 6 if group.group_id % 2 else 4
        for member in self._draw.sample(NUMBERS, self._draw.randint(0, 3)):
            each = group.members.add(member_id=member, weight=self._draw.randint(1, 3))
            self._watched(each)

    def _replicas(self, replicas: Any) -> None:
        places = [(port, instance) for port in PORTS for instance in range(3)]
        for port, instance in self._draw.sample(places, self._draw.randint(1, 4)):
            replica = replicas.add(instance=instance)
            if self._draw.random() < 0.5:
                replica.port = canonical(port)
            else:
                replica.egress_port = port

    def _multicast(self, entity: p4r.Entity) -> None:
        group = entity.packet_replication_engine_entry.multicast_group_entry
        group.multicast_group_id = self._draw.choice(NUMBERS)
        self._replicas(group.replicas)
        if self._draw.random() < 0.3:
            group.metadata = self._value(8)

    def _session(self, entity: p4r.Entity) -> None:
        session = entity.packet_replication_engine_entry.clone_session_entry
        session.session_id = self._draw.choice(NUMBERS)
        self._replicas(session.replicas)
        session.class_of_service = self._draw.randrange(VALUES)
        session.packet_length_bytes = self._draw.choice((0, 64))

    def _value_set(self, entity: p4r.Entity) -> None:
        found = self._draw.choice(self._info.value_sets)
        entity.value_set_entry.value_set_id = found.preamble.id
        for _ in range(self._draw.randint(0, found.size)):
            self._fields(found.match, entity.value_set_entry.members.add().match)

    def _register(self, entity: p4r.Entity) -> None:
        bits = [each for each in self._info.registers if each.type_spec.HasField("bitstring")]
        register, entry = self._draw.choice(bits), entity.register_entry
        entry.register_id = register.preamble.id
        entry.index.index = self._draw.choice((0, 1, register.size - 1))
        entry.data.bitstring = self._value(register.type_spec.bitstring.bit.bitwidth)

    # ---- errors in updates ------------------------------------------------------------------

    def _spoil(self, update: p4r.Update) -> None:
        """Change one field somewhere in the update, or take it away."""
        if self._draw.random() < 0.1:
            update.type = self._draw.choice((p4r.Update.UNSPECIFIED, INSERT, MODIFY, DELETE))
            return
        message: Any = update.entity
        while True:
            fields = [*message.ListFields()]
            if not fields:
                return
            field, value = self._draw.choice(fields)
            if field.message_type is None:
                self._spoil_scalar(message, field, value)
                return
            # Without an index the update would be of all cells, which the oracle does not follow.
            optional = message is not update.entity and field.name != "index"
            if optional and self._draw.random() < 0.15:
                message.ClearField(field.name)
                return
            if field.is_repeated:
                if self._draw.random() < 0.15:
                    value.add().CopyFrom(self._draw.choice(value))
                    return
                value = self._draw.choice(value)
            message = value

    def _spoil_scalar(self, message: Any, field: Any, value: Any) -> None:
        of_program = field.name.endswith("_id") and field.name not in ("field_id", "param_id")
        if of_program and self._draw.random() < 0.5:
            known = [table.preamble.id for table in self._info.tables] + list(self._actions)
            setattr(message, field.name, self._draw.choice(known))
            return
        if isinstance(value, bool):
            setattr(message, field.name, not value)
        elif isinstance(value, bytes):
            odd = b"x" * LONG_BYTES if field.name == "metadata" else self._draw.choice(_ODD_BYTES)
            setattr(message, field.name, odd)
        else:
            signed = field.type in (field.TYPE_INT32, field.TYPE_INT64)
            odd_number = self._draw.choice((*_ODD_NUMBERS, *((-1,) if signed else ())))
            if message.DESCRIPTOR.name == "TableEntry" and self._draw.random() < 0.3:
                message.is_const = True
                return
            setattr(message, field.name, odd_number)
