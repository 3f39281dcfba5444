"""Packets for a compiled program: made along its parser, then left so, changed or cut.

The maker walks the parser's states, draws each field it extracts, and gives a select's key a value
that one of its cases takes. It need not know the path of a packet through the parser exactly,
since the switches decide that. It only has to reach every state often.
"""

from __future__ import annotations

import json
import operator
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from values import Values

_STATES_MAX = 24
_VARBIT_MAX_BITS = 512
_PAYLOAD_MAX = 40

SHIFT_MAX = 4096
OPERATORS: dict[str, Callable[[int, int], int | bool]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "and": lambda left, right: bool(left and right),
    "or": lambda left, right: bool(left or right),
    "not": lambda _, right: not right,
    "d2b": lambda _, right: right,
    "b2d": lambda _, right: right,
}
"""Operators of a parser's expressions in BMv2 JSON."""

Place = tuple[str, str]


class _UnknownError(Exception):
    """An expression that the maker does not follow."""


class PacketMaker:
    """Draws packets for a program."""

    def __init__(self, compiled: Path, draw: random.Random, values: Values) -> None:
        root = json.loads(compiled.read_text())
        self._draw = draw
        self._values = values
        kinds = {kind["name"]: kind["fields"] for kind in root["header_types"]}
        self._fields: dict[str, list[tuple[str, Any]]] = {
            header["name"]: [(f[0], f[1]) for f in kinds[header["header_type"]]]
            for header in root["headers"]
        }
        self._widths: dict[Place, Any] = {
            (header, name): bits for header, fields in self._fields.items() for name, bits in fields
        }
        self._metadata = {header["name"] for header in root["headers"] if header["metadata"]}
        names = {header["id"]: header["name"] for header in root["headers"]}
        self._stacks = {
            stack["name"]: [names[number] for number in stack["header_ids"]]
            for stack in root["header_stacks"]
        }
        self._union_stacks = {
            stack["name"]: int(stack["size"]) for stack in root.get("header_union_stacks", [])
        }
        self.states = {
            state["name"]: state for parser in root["parsers"] for state in parser["parse_states"]
        }
        self.states_seen: set[str] = set()
        self._start = root["parsers"][0]["init_state"]

    def packet(self) -> bytes:
        """One packet, at least a byte."""
        kind = self._draw.random()
        if kind < 0.03:
            return self._draw.randbytes(self._draw.randint(1, 80))
        head = _Walk(self).run()
        payload = self._draw.randbytes(self._draw.choice((0, 0, 1, 7, 18, _PAYLOAD_MAX)))
        whole = bytearray(head + payload)
        if kind < 0.18 and whole:
            del whole[self._draw.randrange(len(head) + 1) :]
        elif kind < 0.36 and whole:
            for _ in range(self._draw.choice((1, 1, 1, 2, 8))):
                at = self._draw.randrange(len(whole))
                whole[at] ^= self._draw.choice((1, 0x80, 0xFF, 1 << self._draw.randrange(8)))
        elif kind < 0.37:
            whole += self._draw.randbytes(1400)
        return bytes(whole) or b"\0"


class _Walk:
    """One way through the parser."""

    def __init__(self, maker: PacketMaker) -> None:
        self._maker = maker
        self._draw = maker._draw
        # The bits so far, as (value, width); the looked-ahead bits; the places of fields in them.
        self._done: list[tuple[int, int]] = []
        self._ahead = ""
        self._at: dict[Place, int] = {}
        self._known: dict[Place, int] = {}
        self._from_ahead: dict[Place, int] = {}
        self._next: dict[str, int] = {}

    def run(self) -> bytes:
        state: str | None = self._maker._start
        for _ in range(_STATES_MAX):
            if state is None:
                break
            state = self._state(self._maker.states[state])
        total = width = 0
        for value, bits in self._done:
            total, width = total << bits | value, width + bits
        spare = -width % 8
        return (total << spare).to_bytes((width + spare) // 8, "big")

    def _state(self, state: dict[str, Any]) -> str | None:
        self._maker.states_seen.add(state["name"])
        for operation in state["parser_ops"]:
            try:
                self._operation(operation["op"], operation["parameters"])
            except _UnknownError:
                continue
        following: str | None = self._choose(state)
        return following

    # ---- bits -------------------------------------------------------------------------------

    def _peek(self, bits: int) -> int:
        while len(self._ahead) < bits:
            width = min(8, bits - len(self._ahead))
            self._ahead += format(self._maker._values.any(width), f"0{width}b")
        return int(self._ahead[:bits], 2) if bits else 0

    def _take(self, bits: int, value: int | None = None) -> int:
        """The next bits of the packet: looked ahead to, given, or drawn."""
        if self._ahead or value is None:
            value = self._peek(bits)
        self._ahead = self._ahead[bits:]
        self._done.append((value, bits))
        return value

    # ---- operations -------------------------------------------------------------------------

    def _operation(self, kind: str, parameters: list[Any]) -> None:
        match kind:
            case "extract":
                self._extract(self._header(parameters[0]), 0)
            case "extract_VL":
                header = self._header(parameters[0])
                try:
                    bits = self._value(parameters[1])
                except _UnknownError:
                    bits = 8 * self._draw.randint(0, 16)
                self._extract(header, min(bits, _VARBIT_MAX_BITS))
            case "set":
                self._set(parameters[0]["value"], parameters[1])
            case "advance":
                self._skip(self._value(parameters[0]))
            case "shift":
                self._skip(8 * int(parameters[0]))

    def _skip(self, bits: int) -> None:
        self._take(min(bits, _VARBIT_MAX_BITS))
        self._from_ahead.clear()

    def _header(self, parameter: dict[str, Any]) -> str:
        value = parameter["value"]
        match parameter["type"]:
            case "regular":
                return str(value)
            case "stack":
                elements = self._maker._stacks[value]
                index = self._next.get(value, 0)
                self._next[value] = index + 1
                return str(elements[min(index, len(elements) - 1)])
            case "union_stack":
                stack, member = value
                index = self._next.get(stack, 0)
                self._next[stack] = index + 1
                return f"{stack}[{min(index, self._maker._union_stacks[stack] - 1)}].{member}"
            case _:
                raise _UnknownError

    def _extract(self, header: str, varbit_bits: int) -> None:
        for name, bits in self._maker._fields[header]:
            width = varbit_bits if bits == "*" else int(bits)
            place = (header, name)
            drawn = self._maker._values.any(width) if not self._ahead else None
            self._at[place] = len(self._done)
            self._known[place] = self._take(width, drawn)
        self._from_ahead.clear()

    def _set(self, place: list[str], source: dict[str, Any]) -> None:
        target: Place = (place[0], place[1])
        self._known.pop(target, None)
        self._from_ahead.pop(target, None)
        if source["type"] == "lookahead":
            offset, bits = source["value"]
            if offset == 0:
                self._from_ahead[target] = bits
        self._known[target] = self._value(source)

    # ---- expressions ------------------------------------------------------------------------

    def _value(self, node: Any) -> int:
        if node is None:
            return 0
        value = node["value"]
        match node["type"]:
            case "hexstr":
                return int(value, 16)
            case "bool":
                return int(value)
            case "field":
                return self._field((value[0], value[1]))
            case "stack_field":
                return self._field((self._last(str(value[0])), str(value[1])))
            case "lookahead":
                offset, bits = value
                return self._peek(int(offset + bits)) & ((1 << int(bits)) - 1)
            case "expression":
                return self._expression(value) if "op" in value else self._value(value)
            case _:
                raise _UnknownError

    def _last(self, stack: str) -> str:
        index = self._next.get(stack, 0) - 1
        elements = self._maker._stacks.get(stack)
        if elements is None or not 0 <= index < len(elements):
            raise _UnknownError
        return str(elements[index])

    def _field(self, place: Place) -> int:
        if place not in self._known:
            if place in self._at or place[0] not in self._maker._metadata:
                raise _UnknownError
            # Metadata begins as zero.
            return 0
        return self._known[place]

    def _expression(self, node: dict[str, Any]) -> int:
        if node["op"] == "?":
            return self._value(node["left"] if self._value(node["cond"]) else node["right"])
        left, right = self._value(node["left"]), self._value(node["right"])
        compute = OPERATORS.get(node["op"])
        if compute is None or (node["op"] == "<<" and right >= SHIFT_MAX):
            raise _UnknownError
        return int(compute(left, right))

    # ---- ways -------------------------------------------------------------------------------

    def _choose(self, state: dict[str, Any]) -> str | None:
        transitions = state["transitions"]
        if not transitions:
            return None
        wanted = self._draw.choice(transitions)
        key = state["transition_key"]
        if wanted["type"] == "hexstr" and key:
            self._give(key, int(wanted["value"], 16), wanted["mask"])
        return self._way(transitions, key, wanted)

    def _key_bits(self, element: dict[str, Any]) -> int:
        value = element["value"]
        match element["type"]:
            case "field":
                bits = self._maker._widths[value[0], value[1]]
            case "stack_field":
                bits = self._maker._widths[self._last(value[0]), value[1]]
            case "lookahead":
                bits = value[1]
            case _:
                raise _UnknownError
        return int(bits)

    def _give(self, key: list[dict[str, Any]], value: int, mask_text: str | None) -> None:
        """Gives the key's sources the value, where they can still be changed."""
        try:
            widths = [self._key_bits(element) for element in key]
        except _UnknownError:
            return
        # In a key every field begins on a byte.
        rounded = [-(-width // 8) * 8 for width in widths]
        mask = int(mask_text, 16) if mask_text else (1 << sum(rounded)) - 1
        left = sum(rounded)
        for element, width, room in zip(key, widths, rounded, strict=True):
            left -= room
            part, part_mask = (n >> left & ((1 << width) - 1) for n in (value, mask))
            drawn = self._draw.getrandbits(width)
            self._write(element, width, (part & part_mask) | (drawn & ~part_mask))

    def _write(self, element: dict[str, Any], width: int, wanted: int) -> None:
        value = element["value"]
        if element["type"] == "lookahead":
            if value[0] == 0:
                self._peek(width)
                self._ahead = format(wanted, f"0{width}b") + self._ahead[width:]
            return
        header = self._last(value[0]) if element["type"] == "stack_field" else value[0]
        place = (header, value[1])
        if place in self._at:
            self._done[self._at[place]] = (wanted, width)
            self._known[place] = wanted
        elif self._from_ahead.get(place) == width:
            self._peek(width)
            self._ahead = format(wanted, f"0{width}b") + self._ahead[width:]
            self._known[place] = wanted

    def _way(
        self, transitions: list[dict[str, Any]], key: list[dict[str, Any]], wanted: dict[str, Any]
    ) -> str | None:
        """The state to which the select leads; the wanted one if the maker cannot tell."""
        try:
            value = 0
            for element in key:
                bits = self._key_bits(element)
                value = value << -(-bits // 8) * 8 | self._value(element) & ((1 << bits) - 1)
        except _UnknownError:
            following: str | None = wanted["next_state"]
            return following
        for transition in transitions:
            if transition["type"] == "hexstr":
                mask = int(transition["mask"], 16) if transition["mask"] else -1
                if value & mask != int(transition["value"], 16) & mask:
                    continue
            elif transition["type"] == "parse_vset" and transition is not wanted:
                continue
            reached: str | None = transition["next_state"]
            return reached
        return None
