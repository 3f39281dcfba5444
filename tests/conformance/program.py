"""A compiled program's tables, their keys and actions, as tests need them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UnknownNameError(Exception):
    """A name in a test that the program does not have, or that fits more than one thing."""


def _named(full: str, name: str) -> bool:
    return full == name or full.endswith(f".{name}")


def _only(found: list[str], name: str) -> str:
    if len(found) != 1:
        raise UnknownNameError(f"{len(found)} things called '{name}'")
    return found[0]


@dataclass(frozen=True)
class Key:
    """A field of a table's key."""

    name: str
    kind: str
    bits: int
    # The program's own mask (P4_14): entries' values count under it.
    mask: int | None = None


@dataclass(frozen=True)
class Table:
    """A table: the names of each action's parameters, in order, and its action profile's."""

    name: str
    keys: tuple[Key, ...]
    actions: tuple[str, ...]
    parameters: dict[str, tuple[str, ...]]
    profile: str | None = None

    @property
    def ordered(self) -> bool:
        """Whether its entries have priorities."""
        return any(key.kind in ("ternary", "range", "optional") for key in self.keys)

    def key(self, name: str) -> Key:
        """The field by a test's name of it: the whole name, or an unambiguous part."""
        wanted = re.sub(r"^(.*)\$(\d+)(.*)$", r"\1[\2]\3", name)
        candidates = [
            wanted,
            f"{wanted}$",
            f"{wanted}.$valid$",
            re.sub(r"valid$", "$valid$", wanted),
        ]
        for candidate in candidates:
            for key in self.keys:
                if key.name == candidate:
                    return key
        for key in self.keys:
            if key.name.endswith((f".{wanted}", f".{wanted}$")):
                return key
            if wanted == "valid" and key.name.endswith("$valid$"):
                return key
        raise UnknownNameError(f"table {self.name} has no key field '{name}'")

    def action(self, name: str) -> str:
        """The full name of one of its actions."""
        if name in self.actions:
            return name
        found = {action for action in self.actions if action.endswith(name)}
        if len(found) != 1:
            raise UnknownNameError(f"table {self.name}: {len(found)} actions called '{name}'")
        return found.pop()


class Program:
    """A compiled program (BMv2 JSON)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        root = json.loads(path.read_text())
        fields = {
            kind["name"]: {field[0]: field[1] for field in kind["fields"]}
            for kind in root["header_types"]
        }
        self._headers = {h["name"]: fields[h["header_type"]] for h in root["headers"]}
        self._parameters = {
            action["id"]: tuple(parameter["name"] for parameter in action["runtime_data"])
            for action in root["actions"]
        }
        self._profiles = [
            profile["name"]
            for pipeline in root["pipelines"]
            for profile in pipeline["action_profiles"]
        ]
        self.value_sets = self._value_sets(root)
        self.tables = [
            self._table(table) for pipeline in root["pipelines"] for table in pipeline["tables"]
        ]

    def _value_sets(self, root: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """The widths of the fields of each value set, as the select that uses it has them."""
        found: dict[str, tuple[int, ...]] = {}
        for parser in root["parsers"]:
            for state in parser["parse_states"]:
                for transition in state["transitions"]:
                    if transition["type"] == "parse_vset":
                        found[transition["value"]] = tuple(
                            self._headers[field["value"][0]][field["value"][1]]
                            for field in state["transition_key"]
                        )
        return found

    def profile(self, name: str) -> str:
        """The action profile that a test calls so: its name, or the last part of it."""
        return _only([p for p in self._profiles if _named(p, name)], name)

    def value_set(self, name: str) -> str:
        """The value set that a test calls so: its name, or the last part of it."""
        return _only([v for v in self.value_sets if _named(v, name)], name)

    def _table(self, table: dict[str, object]) -> Table:
        keys = []
        given = table["key"]
        actions = table["actions"]
        assert isinstance(given, list)
        assert isinstance(actions, list)
        for key in given:
            target = key["target"]
            if isinstance(target, list):
                header, field = target
                bits = 1 if field == "$valid$" else int(self._headers[header][field])
                name = ".".join(target)
            else:
                bits, name = 1, target
            mask = key.get("mask")
            mask = None if mask is None else int(mask, 16)
            keys.append(Key(key.get("name") or name, key["match_type"], bits, mask))
        identifiers = table["action_ids"]
        assert isinstance(identifiers, list)
        parameters = {
            name: self._parameters[number]
            for name, number in zip(actions, identifiers, strict=True)
        }
        profile = table.get("action_profile")
        return Table(
            str(table["name"]),
            tuple(keys),
            tuple(actions),
            parameters,
            None if profile is None else str(profile),
        )

    def table(self, name: str) -> Table:
        """The table that a test calls so: its name, or an unambiguous end of it."""
        for table in self.tables:
            if table.name == name:
                return table
        found = [table for table in self.tables if table.name.endswith(name)]
        if len(found) != 1:
            raise UnknownNameError(f"{len(found)} tables called '{name}'")
        return found[0]
