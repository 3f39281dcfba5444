"""Programs that no compiler would write: the compiled pacer.p4 with one thing wrong in it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from virtual_switch import COMPILED

Program = dict[str, Any]

TEXT = (COMPILED / "pacer.json").read_text()
_PROGRAM: Program = json.loads(TEXT)


@dataclass(frozen=True)
class Bad:
    """A bad program: its text, and the words that a message about it must have."""

    name: str
    text: str
    named: tuple[str, ...]


def changed(change: Callable[[Program], object]) -> str:
    """Return the compiled program after a change."""
    program = copy.deepcopy(_PROGRAM)
    change(program)
    return json.dumps(program)


def _by_name(things: list[Program], name: str) -> Program:
    return next(thing for thing in things if thing["name"] == name)


def _flows(program: Program) -> Program:
    return _by_name(program["pipelines"][0]["tables"], "PacerIngress.flows")


def _classify(program: Program) -> Program:
    return _by_name(program["actions"], "PacerIngress.classify")


def _extern_call(program: Program) -> Program:
    return next(
        primitive
        for action in program["actions"]
        for primitive in action["primitives"]
        if primitive["op"] == "_TrafficManager_now"
    )


def _ethernet(program: Program) -> Program:
    return _by_name(program["header_types"], "ethernet_t")


def bad_programs() -> Iterator[Bad]:
    """Yield every bad program."""
    yield from _bad_json()
    yield from _wrong_types()
    yield from _names_of_nothing()
    yield from _ids_and_externs()


def bad(name: str, change: Callable[[Program], object], *named: str) -> Bad:
    """Return the program after a change that makes it bad."""
    return Bad(name, changed(change), named)


def _bad_json() -> Iterator[Bad]:
    yield Bad("empty", "", ("EOF",))
    yield Bad("not-json", "#include <core.p4>\n", ("not BMv2 JSON", "line 1 column 1"))
    yield Bad("truncated", TEXT[: len(TEXT) // 2], ("EOF",))
    yield Bad("last-byte-missing", TEXT.rstrip()[:-1], ("EOF",))
    yield Bad("something-behind", TEXT + "}", ("trailing",))
    yield Bad("a-list", "[]", ("not BMv2 JSON",))
    yield Bad("an-empty-object", "{}", ("missing field", "__meta__"))
    yield Bad("deeply-nested", "[" * 100_000, ("nested deeper than",))
    yield Bad("key-twice", '{"headers": [],' + TEXT.lstrip()[1:], ("duplicate field", "headers"))


def _wrong_types() -> Iterator[Bad]:
    yield bad(
        "tables-are-text",
        lambda p: p["pipelines"][0].update(tables="none"),
        "pipelines[0].tables",
        "expected a sequence",
    )
    yield bad("header-types-are-a-number", lambda p: p.update(header_types=5), "header_types")
    yield bad(
        "register-size-negative",
        lambda p: p["register_arrays"][0].update(size=-1),
        "register_arrays[0].size",
    )
    yield bad(
        "register-size-huge",
        lambda p: p["register_arrays"][0].update(size=1 << 40),
        _PROGRAM["register_arrays"][0]["name"],
        str(1 << 40),
    )
    for width in (-1, 0.5, 10**9, "wide"):
        yield bad(
            f"field-width-{width}",
            lambda p, width=width: _ethernet(p)["fields"][0].__setitem__(1, width),  # type: ignore[misc]
            "ethernet_t",
            _ethernet(_PROGRAM)["fields"][0][0],
            str(width),
        )
    yield bad("format-99", lambda p: p["__meta__"].update(version=[99, 0]), "version", "99.0")


def _names_of_nothing() -> Iterator[Bad]:
    yield bad("no-pipelines", lambda p: p.update(pipelines=[]), "'ingress'")
    yield bad("pipelines-missing", lambda p: p.pop("pipelines"), "pipelines")
    yield bad(
        "action-id",
        lambda p: _flows(p).update(action_ids=[9999]),
        "table 'PacerIngress.flows'",
        "action id 9999",
    )
    yield bad(
        "default-action-id",
        lambda p: _flows(p)["default_entry"].update(action_id=9999),
        "table 'PacerIngress.flows'",
        "default_entry",
        "9999",
    )
    yield bad(
        "next-table",
        lambda p: _flows(p).update(base_default_next="nowhere"),
        "table 'PacerIngress.flows'",
        "'nowhere'",
    )
    yield bad(
        "first-table",
        lambda p: p["pipelines"][0].update(init_table="nowhere"),
        "pipeline 'ingress'",
        "init_table",
        "'nowhere'",
    )
    yield bad(
        "key-field",
        lambda p: _flows(p)["key"][0].update(target=["ethernet", "colour"]),
        "table 'PacerIngress.flows'",
        "'ethernet'",
        "'colour'",
    )
    yield bad(
        "key-header",
        lambda p: _flows(p)["key"][0].update(target=["ether", "src"]),
        "table 'PacerIngress.flows'",
        "'ether'",
    )
    yield bad(
        "match-type",
        lambda p: _flows(p)["key"][0].update(match_type="fuzzy"),
        "table 'PacerIngress.flows'",
        "match type 'fuzzy'",
    )
    yield bad(
        "header-type",
        lambda p: _by_name(p["headers"], "ethernet").update(header_type="nope"),
        "header 'ethernet'",
        "'nope'",
    )
    yield bad(
        "first-state",
        lambda p: p["parsers"][0].update(init_state="nope"),
        "init_state",
        "'nope'",
    )
    yield bad(
        "next-state",
        lambda p: p["parsers"][0]["parse_states"][0]["transitions"][0].update(next_state="nope"),
        "state 'start'",
        "transition 0",
        "'nope'",
    )
    yield bad(
        "deparsed-header",
        lambda p: p["deparsers"][0].update(order=["nope"]),
        "deparser",
        "'nope'",
    )
    yield bad(
        "action-parameter",
        lambda p: _classify(p)["primitives"][0]["parameters"].__setitem__(
            1, {"type": "runtime_data", "value": 99}
        ),
        "action 'PacerIngress.classify'",
        "parameter 99",
    )
    yield bad("counter", lambda p: p.update(counter_arrays=[]), "counter", "PacerIngress.")
    yield bad("meter", lambda p: p.update(meter_arrays=[]), "meter 'PacerIngress.flow_meter'")


def _ids_and_externs() -> Iterator[Bad]:
    yield bad("header-id-twice", lambda p: p["headers"][4].update(id=3), "id 3", "twice")
    yield bad("action-id-twice", lambda p: p["actions"][4].update(id=3), "id 3", "twice")
    yield bad(
        "tables-in-a-circle",
        lambda p: [
            table["next_tables"].update(dict.fromkeys(table["next_tables"], table["name"]))
            for table in p["pipelines"][0]["tables"][:1]
        ],
        "pipeline 'ingress'",
        _PROGRAM["pipelines"][0]["tables"][0]["name"],
        "loops",
    )
    yield bad(
        "extern-type",
        lambda p: p["extern_instances"][0].update(type="TrafficWizard"),
        "extern instance 'tm'",
        "'TrafficWizard'",
    )
    yield bad(
        "extern-instance", lambda p: p.update(extern_instances=[]), "extern instance 'tm'", "_now"
    )
    yield bad(
        "extern-method",
        lambda p: _extern_call(p).update(op="_TrafficManager_teleport"),
        "'TrafficManager'",
        "'teleport'",
    )
    yield bad("primitive", lambda p: _extern_call(p).update(op="fly"), "action '", "'fly'")
