"""Translates a runtime file of `pacing_switch` into commands of `simple_switch_CLI`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from program import Program, Table

# Least BMv2 priority is best; that of a runtime file's entry is greatest.
PRIORITIES = 10_000


class UntranslatableError(Exception):
    """The command line has no command for this."""


def _match(kind: str, bits: int, value: Any) -> str:
    everything = (1 << bits) - 1
    match kind:
        case "exact":
            return str(value)
        case "lpm":
            number, length = (0, 0) if value is None else value
            # simple_switch counts the length from the byte in which the field begins, and takes
            # none greater than the field's width.
            counted = length + -bits % 8 if length else 0
            if counted > bits:
                raise UntranslatableError(f"a prefix of {length} of {bits} bits")
            return f"{number}/{counted}"
        case "ternary":
            if value is None:
                return "0&&&0"
            # p4c compiles an optional field to a ternary one.
            number, mask = value if isinstance(value, list) else (value, hex(everything))
            return f"{number}&&&{mask}"
        case "range":
            low, high = (0, everything) if value is None else value
            return f"{low}->{high}"
        case other:
            raise UntranslatableError(f"a match of kind '{other}'")


def _arguments(table: Table, entry: dict[str, Any]) -> str:
    given = entry.get("action_params", {})
    names = table.parameters[table.action(entry["action_name"])]
    return "".join(f" {given[name]}" for name in names)


class _Profiles:
    """Members and groups of action profiles, which BMv2 numbers itself, from 0 in each."""

    def __init__(self, program: Program, runtime: dict[str, Any]) -> None:
        self._program = program
        self._members = runtime.get("action_profile_members", [])
        self._groups = runtime.get("action_profile_groups", [])
        self._handles: dict[tuple[str, str, int], int] = {}
        for kind, entries in (("member_id", self._members), ("group_id", self._groups)):
            counts: dict[str, int] = {}
            for entry in entries:
                profile = program.profile(entry["action_profile"])
                self._handles[profile, kind, entry[kind]] = counts.get(profile, 0)
                counts[profile] = counts.get(profile, 0) + 1

    def handle(self, profile: str | None, kind: str, number: int) -> int:
        """BMv2's number of a member or group."""
        try:
            return self._handles[str(profile), kind, number]
        except KeyError as missing:
            raise UntranslatableError(f"{profile} has no {kind} {number}") from missing

    def commands(self) -> Iterator[str]:
        for member in self._members:
            name = self._program.profile(member["action_profile"])
            table = next(table for table in self._program.tables if table.profile == name)
            action = table.action(member["action_name"])
            yield f"act_prof_create_member {name} {action}{_arguments(table, member)}"
        for group in self._groups:
            name = self._program.profile(group["action_profile"])
            number = self.handle(name, "group_id", group["group_id"])
            yield f"act_prof_create_group {name}"
            for entry in group["members"]:
                if entry.get("weight", 1) != 1:
                    raise UntranslatableError("weights of members")
                member = self.handle(name, "member_id", entry["member_id"])
                yield f"act_prof_add_member_to_group {name} {member} {number}"


def _table_entry(program: Program, profiles: _Profiles, entry: dict[str, Any]) -> str:
    table = program.table(entry["table"])
    if entry.get("default_action"):
        action = table.action(entry["action_name"])
        return f"table_set_default {table.name} {action}{_arguments(table, entry)}"
    match = entry.get("match", {})
    fields = " ".join(_match(key.kind, key.bits, match.get(key.name)) for key in table.keys)
    priority = f" {PRIORITIES - entry.get('priority', 1)}" if table.ordered else ""
    for kind, command in (
        ("member_id", "table_indirect_add"),
        ("group_id", "table_indirect_add_with_group"),
    ):
        if kind in entry:
            handle = profiles.handle(table.profile, kind, entry[kind])
            return f"{command} {table.name} {fields} => {handle}{priority}"
    action = table.action(entry["action_name"])
    return f"table_add {table.name} {action} {fields} =>{_arguments(table, entry)}{priority}"


def _replication(runtime: dict[str, Any]) -> Iterator[str]:
    nodes = 0
    groups = list(runtime.get("multicast_group_entries", []))
    # For the groups that clone sessions need and the program does not have.
    spare = 0x8000
    for session in runtime.get("clone_session_entries", []):
        number, replicas = session["clone_session_id"], session["replicas"]
        if len(replicas) == 1 and not replicas[0].get("instance"):
            yield f"mirroring_add {number} {replicas[0]['egress_port']}"
        else:
            same = [g["multicast_group_id"] for g in groups if g["replicas"] == replicas]
            if not same:
                groups.append({"multicast_group_id": spare, "replicas": replicas})
                same = [spare]
                spare += 1
            yield f"mirroring_add_mc {number} {same[0]}"
    for group in groups:
        number = group["multicast_group_id"]
        yield f"mc_mgrp_create {number}"
        for replica in group["replicas"]:
            yield f"mc_node_create {replica.get('instance', 0)} {replica['egress_port']}"
            yield f"mc_node_associate {number} {nodes}"
            nodes += 1


def commands(program: Program, runtime: dict[str, Any]) -> list[str]:
    """The commands that install a runtime file's entries, in their order.

    Raises UntranslatableError for entries that simple_switch or its command line does not have.
    """
    if runtime.get("value_set_entries"):
        raise UntranslatableError("value sets: pvs_add gives a member a byte too many")
    if runtime.get("register_entries"):
        raise UntranslatableError("register cells")
    profiles = _Profiles(program, runtime)
    return [
        *profiles.commands(),
        *_replication(runtime),
        *(_table_entry(program, profiles, entry) for entry in runtime.get("table_entries", [])),
    ]
