"""Random contents for the tables of a compiled program, as a runtime file of pacing_switch."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from program import Key, Program, Table
from values import Values

PORTS = range(8)
_PORT_BITS = 9
_DROP = 511
_COUNTS = (0, 1, 2, 4, 8, 20, 60)


def _under_mask(key: Key, match: Any) -> Any:
    """A match as the switches compare it with others: its value under the program's mask."""
    if key.mask is None:
        return match
    if isinstance(match, str):
        return hex(int(match, 16) & key.mask)
    value, *rest = match
    return [hex(int(value, 16) & key.mask), *rest]


class EntryMaker:
    """Draws a runtime file for a program."""

    def __init__(self, compiled: Path, draw: random.Random, values: Values) -> None:
        self._draw = draw
        self._values = values
        self._program = Program(compiled)
        root = json.loads(compiled.read_text())
        self._widths = {
            (action["name"], parameter["name"]): int(parameter["bitwidth"])
            for action in root["actions"]
            for parameter in action["runtime_data"]
        }
        tables = [table for pipeline in root["pipelines"] for table in pipeline["tables"]]
        self._constant = {table["name"] for table in tables if "entries" in table}
        self._fixed = {
            table["name"]
            for table in tables
            if table.get("action_profile")
            or table.get("default_entry", {}).get("action_const", True)
        }
        profiles = [
            profile for pipeline in root["pipelines"] for profile in pipeline["action_profiles"]
        ]
        self._selectors = {profile["name"] for profile in profiles if "selector" in profile}
        # The most entries of each table; the most members, and weights of groups, of each profile.
        self._table_sizes = {table["name"]: int(table["max_size"]) for table in tables}
        self._profile_sizes = {profile["name"]: int(profile["max_size"]) for profile in profiles}

    def runtime(self) -> dict[str, Any]:
        """The whole file; without value sets, which simple_switch_CLI cannot fill."""
        members: list[dict[str, Any]] = []
        groups: list[dict[str, Any]] = []
        for table in self._program.tables:
            if table.profile is not None and all(
                member["action_profile"] != table.profile for member in members
            ):
                self._profile(table, members, groups)
        entries: list[dict[str, Any]] = []
        for table in self._program.tables:
            if table.name not in self._fixed and self._draw.random() < 0.4:
                entries.append({"table": table.name, "default_action": True} | self._call(table))
            if table.keys and table.name not in self._constant:
                entries += self._table(table, members, groups)
        replicas = [self._replicas() for _ in range(5)]
        return {
            "action_profile_members": members,
            "action_profile_groups": groups,
            "multicast_group_entries": [
                {"multicast_group_id": number, "replicas": copies}
                for number, copies in enumerate(replicas, 1)
            ],
            "clone_session_entries": [
                {"clone_session_id": number, "replicas": self._session(replicas)}
                for number in (1, 2, 3, 5, 9)
            ],
            "table_entries": entries,
        }

    # ---- replication ------------------------------------------------------------------------

    def _replicas(self) -> list[dict[str, int]]:
        every = [(port, instance) for port in PORTS for instance in range(1, 5)]
        chosen = self._draw.sample(every, self._draw.randint(1, 4))
        return [{"egress_port": port, "instance": instance} for port, instance in chosen]

    def _session(self, groups: list[list[dict[str, int]]]) -> list[dict[str, int]]:
        # simple_switch clones to a port or to a multicast group, which others can use then.
        if self._draw.random() < 0.5:
            return self._draw.choice(groups)
        return [{"egress_port": self._draw.choice(PORTS), "instance": 0}]

    # ---- actions ----------------------------------------------------------------------------

    def _call(self, table: Table) -> dict[str, Any]:
        action = self._draw.choice(table.actions)
        return {
            "action_name": action,
            "action_params": {
                name: hex(self._argument(self._widths[action, name]))
                for name in table.parameters[action]
            },
        }

    def _argument(self, bits: int) -> int:
        if bits == _PORT_BITS:
            return _DROP if self._draw.random() < 0.05 else self._draw.choice(PORTS)
        return self._values.any(bits)

    def _profile(
        self, table: Table, members: list[dict[str, Any]], groups: list[dict[str, Any]]
    ) -> None:
        assert table.profile is not None
        size = self._profile_sizes[table.profile]
        numbers = range(1, min(self._draw.randint(2, 8), size + 1))
        for number in numbers:
            member = {"action_profile": table.profile, "member_id": number}
            members.append(member | self._call(table))
        if table.profile not in self._selectors:
            return
        for number in range(1, self._draw.randint(2, 5)):
            chosen = self._draw.sample(numbers, self._draw.randint(1, len(numbers)))[:size]
            if not chosen:
                break
            size -= len(chosen)
            groups.append(
                {
                    "action_profile": table.profile,
                    "group_id": number,
                    "members": [{"member_id": member} for member in chosen],
                }
            )

    # ---- entries ----------------------------------------------------------------------------

    def _table(
        self, table: Table, members: list[dict[str, Any]], groups: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        seen: set[str] = set()
        priorities = list(range(1, max(_COUNTS) + 1))
        self._draw.shuffle(priorities)
        for _ in range(min(self._draw.choice(_COUNTS), self._table_sizes[table.name])):
            match = {key.name: self._match(key) for key in table.keys}
            text = json.dumps([_under_mask(key, match[key.name]) for key in table.keys])
            if text in seen:
                continue
            seen.add(text)
            entry: dict[str, Any] = {"table": table.name, "match": match}
            if table.ordered:
                entry["priority"] = priorities.pop()
            entries.append(entry | self._result(table, members, groups))
        return entries

    def _result(
        self, table: Table, members: list[dict[str, Any]], groups: list[dict[str, Any]]
    ) -> dict[str, Any]:
        if table.profile is None:
            return self._call(table)
        own = [group["group_id"] for group in groups if group["action_profile"] == table.profile]
        if own and self._draw.random() < 0.7:
            return {"group_id": self._draw.choice(own)}
        return {
            "member_id": self._draw.choice(
                [m["member_id"] for m in members if m["action_profile"] == table.profile]
            )
        }

    def _match(self, key: Key) -> Any:
        bits, everything = key.bits, (1 << key.bits) - 1
        value = self._values.known(bits) if self._draw.random() < 0.8 else self._values.any(bits)
        match key.kind:
            case "lpm":
                # simple_switch has no longer prefixes of a field that is not whole bytes.
                most = max(0, bits - -bits % 8)
                length = min(most, self._draw.choice((0, 1, bits // 4, bits // 2, bits - 1, bits)))
                return [hex(value & everything ^ value & everything >> length), length]
            case "ternary":
                mask = self._mask(bits)
                return [hex(value & mask), hex(mask)]
            case "range":
                if self._draw.random() < 0.3:
                    return [hex(0), hex(everything)]
                low, high = sorted((value, self._values.any(bits)))
                return [hex(low), hex(high)]
            case _:
                return hex(value)

    def _mask(self, bits: int) -> int:
        everything = (1 << bits) - 1
        kind = self._draw.random()
        if kind < 0.4:
            return everything
        if kind < 0.7:
            return 0
        if kind < 0.85:
            return everything ^ everything >> self._draw.randint(0, bits)
        return self._draw.getrandbits(bits)
