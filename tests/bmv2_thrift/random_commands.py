"""Random commands of BMv2's command line for a program: most are right, and many meet each other.

None of them meets a difference that the documentation lists: after it, the states would differ.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

# Few values, so that entries, members and groups meet.
_NUMBERS = (0, 1, 2, 3, 5)
_HANDLES = (0, 0, 1, 1, 2, 3, 4, 16777216, 16777217, 33554432, -1, 99)
_WRONG = 0.03
"""How often an argument is none."""
_BITS_OF_A_BYTE = 8


class _Drawing:
    """The objects of a program, and commands for them."""

    def __init__(self, compiled: Path, draw: random.Random) -> None:
        self.draw = draw
        program = json.loads(compiled.read_text())
        types = {
            each["name"]: dict(field[:2] for field in each["fields"])
            for each in program["header_types"]
        }
        self.headers = {each["name"]: types[each["header_type"]] for each in program["headers"]}
        self.actions = {
            each["name"]: [data["bitwidth"] for data in each["runtime_data"]]
            for each in program["actions"]
        }
        pipelines = program["pipelines"]
        # Tables that p4c makes for statements are all alike.
        tables = [each for pipeline in pipelines for each in pipeline["tables"]]
        self.tables = [each for each in tables if not each["name"].startswith("tbl_")]
        self.room = {
            each["name"]: each["max_size"]
            for pipeline in pipelines
            for each in pipeline["action_profiles"]
        }
        self.actions_of = {
            each["action_profile"]: each["actions"]
            for each in self.tables
            if "action_profile" in each
        }
        self.counters = program["counter_arrays"]
        self.meters = program["meter_arrays"]
        self.registers = program["register_arrays"]

    def number(self, bits: int) -> int:
        """A value of a field; now and then one that needs all its bytes."""
        if self.draw.random() < 0.1:
            size = (bits + _BITS_OF_A_BYTE - 1) // _BITS_OF_A_BYTE * _BITS_OF_A_BYTE
            return self.draw.choice(((1 << size) - 1, (1 << bits) - 1, 1 << (bits - 1)))
        return self.draw.choice(_NUMBERS) % (1 << bits)

    def narrow(self, bits: int) -> int:
        """A value without bits beyond the field."""
        return self.number(bits) % (1 << bits)

    def handle(self) -> str:
        return "x" if self.draw.random() < _WRONG else str(self.draw.choice(_HANDLES))

    def data(self, action: str) -> str:
        values = [str(self.narrow(bits)) for bits in self.actions[action]]
        if values and self.draw.random() < _WRONG:
            values.pop()
        return " ".join(values)

    def width(self, target: list[str]) -> int:
        bits: int = self.headers[target[0]].get(target[1], 1)
        return bits

    def key(self, table: dict[str, Any]) -> str:
        """A key, as each kind of match is written."""
        words = []
        for field in table["key"]:
            bits = self.width(field["target"])
            value = self.number(bits)
            match field["match_type"]:
                case "lpm":
                    whole = bits % _BITS_OF_A_BYTE == 0
                    lengths = (bits // 2, bits - 1, bits, *((0, 1, bits + 1) if whole else ()))
                    words.append(f"{value}/{self.draw.choice(lengths)}")
                case "ternary":
                    words.append(f"{value}&&&{self.narrow(bits)}")
                case "range":
                    low, high = sorted(self.narrow(bits) for _ in range(2))
                    words.append(f"{low}->{high}")
                case _:
                    words.append(str(value))
        return " ".join(words)

    def priority(self, table: dict[str, Any]) -> str:
        ordered = table["match_type"] in ("ternary", "range")
        return f" {self.draw.choice((0, 1, 1, 2, 7))}" if ordered else ""

    def of_table(self) -> str:
        table = self.draw.choice(self.tables)
        name, action = table["name"], self.draw.choice(table["actions"])
        commands = [
            f"table_add {name} {action} {self.key(table)} => {self.data(action)}"
            + self.priority(table)
        ] * 4
        commands += [
            f"table_modify {name} {action} {self.handle()} => {self.data(action)}",
            f"table_delete {name} {self.handle()}",
            f"table_set_default {name} {action} {self.data(action)}",
            f"table_reset_default {name}",
            f"table_num_entries {name}",
            f"table_dump_entry {name} {self.handle()}",
            f"table_dump_entry_from_key {name} {self.key(table)}{self.priority(table)}",
            f"table_dump {name}",
        ]
        if not table.get("entries") and self.draw.random() < 0.2:
            commands.append(f"table_clear {name}")
        if "action_profile" in table:
            commands += [
                f"table_indirect_add {name} {self.key(table)} => {self.handle()}"
                + self.priority(table),
                f"table_indirect_add_with_group {name} {self.key(table)} => {self.handle()}"
                + self.priority(table),
                f"table_indirect_delete {name} {self.handle()}",
                f"table_indirect_set_default {name} {self.handle()}",
                f"table_indirect_set_default_with_group {name} {self.handle()}",
                f"table_indirect_reset_default {name}",
            ] * 2
        return self.draw.choice(commands)

    def of_profile(self) -> str:
        name = self.draw.choice(list(self.room))
        action = self.draw.choice(self.actions_of[name])
        commands = [
            f"act_prof_modify_member {name} {action} {self.handle()} => {self.data(action)}",
            f"act_prof_create_group {name}",
            f"act_prof_add_member_to_group {name} {self.handle()} {self.handle()}",
            f"act_prof_add_member_to_group {name} {self.handle()} {self.handle()}",
            f"act_prof_remove_member_from_group {name} {self.handle()} {self.handle()}",
            f"act_prof_dump_member {name} {self.handle()}",
            f"act_prof_dump_group {name} {self.handle()}",
            f"act_prof_dump {name}",
        ]
        if self.room[name] and self.draw.random() < 0.2:
            self.room[name] -= 1
            return f"act_prof_create_member {name} {action} {self.data(action)}"
        return self.draw.choice(commands)

    def of_array(self) -> str:
        array = self.draw.choice([*self.counters, *self.meters, *self.registers])
        name = array["name"]
        if array in self.counters:
            return self.draw.choice(
                (
                    f"counter_write {name} {self.handle()} {self.number(32)} {self.number(32)}",
                    f"counter_read {name} {self.handle()}",
                    f"counter_reset {name}",
                )
            )
        if array in self.registers:
            bits = array["bitwidth"]
            return self.draw.choice(
                (
                    f"register_write {name} {self.handle()} {self.number(min(bits, 63))}",
                    f"register_read {name} {self.handle()}",
                    f"register_reset {name}",
                )
            )
        rates = " ".join(
            f"0.{rate}:{self.draw.randrange(1, 99)}"
            for rate in sorted(self.draw.randrange(1, 9) for _ in range(array["rate_count"]))
        )
        return self.draw.choice(
            (
                f"meter_set_rates {name} {self.handle()} {rates}",
                f"meter_get_rates {name} {self.handle()}",
                f"meter_array_set_rates {name} {rates}",
            )
        )

    def of_copies(self) -> str:
        group, node = self.draw.choice(_NUMBERS), self.draw.choice(_NUMBERS)
        ports = " ".join(str(self.draw.choice(_NUMBERS)) for _ in range(self.draw.randrange(4)))
        lags = self.draw.choice(("", " | 1", " | 2 3"))
        return self.draw.choice(
            (
                f"mc_mgrp_create {group}",
                f"mc_node_destroy {node}",
                f"mc_node_create {self.draw.choice(_NUMBERS)} {ports}{lags}",
                f"mc_node_update {node} {ports}{lags}",
                f"mc_node_associate {group} {node}",
                f"mc_node_associate {group} {node}",
                f"mc_node_dissociate {group} {node}",
                f"mc_set_lag_membership {self.draw.choice(_NUMBERS)} {ports}",
                "mc_dump",
                f"mirroring_add {group} {node}",
                f"mirroring_add_mc {group} {node}",
                f"mirroring_get {group}",
                f"mirroring_delete {group}",
            )
        )


def random_commands(compiled: Path, count: int, seed: str) -> list[str]:
    """The commands that a seed stands for."""
    drawing = _Drawing(compiled, random.Random(seed))
    kinds = [drawing.of_copies]
    kinds += [drawing.of_table] * 6 if drawing.tables else []
    kinds += [drawing.of_profile] * 4 if drawing.room else []
    kinds += [drawing.of_array] * 2 if drawing.counters or drawing.meters else []
    return [" ".join(drawing.draw.choice(kinds)().split()) for _ in range(count)]
