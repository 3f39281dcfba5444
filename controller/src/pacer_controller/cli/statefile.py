"""Files of a whole desired state: YAML, of which JSON is a part."""

import re
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from pacer_controller.cli.connection import UsageError

MAX_BYTES = 32 * 1024 * 1024
"""Longest state file, in bytes: the same limit as the controller's."""

_PARTS = ("ports", "classes", "meters", "flows")


class _Loader(yaml.SafeLoader):
    """Plain values only; a name twice is an error, and nothing is guessed to be a date or octal."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping, whose names are text and unique."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a name must be plain text", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} stands here twice", key.start_mark
                )
            seen.add(key.value)
        made = super().construct_mapping(node, deep)
        return {str(name): value for name, value in made.items()}


# Only what JSON knows, as YAML 1.2 has it: `no`, `1:20`, `010` and `2026-01-01` stay text.
_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ("bool", r"^(?:true|false)$", ["t", "f"]),
    ("int", r"^-?(?:0|[1-9][0-9]*)$", list("-0123456789")),
    ("float", r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _first)


def load(name: str) -> dict[str, Any]:
    """Read a state from a file, or from standard input ("-").

    Raises:
        UsageError: no such file, no YAML, or nothing that could be a state; says where.

    """
    try:
        if name == "-":
            text = sys.stdin.read(MAX_BYTES + 1)
        else:
            with Path(name).open(encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name}: not UTF-8") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{name}: longer than {MAX_BYTES // 2**20} MiB")
    try:
        state = yaml.load(text, _Loader)  # noqa: S506 (it is a SafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: {_place(error)}") from None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    if not isinstance(state, dict):
        raise UsageError(
            f"{name}: want a mapping, with `switches:` on top, or one of {', '.join(_PARTS)} for "
            "a single switch (--switch)"
        )
    return state


def is_of_one_switch(state: dict[str, Any]) -> bool:
    """Whether this is the state of one switch."""
    return "switches" not in state and any(part in state for part in _PARTS)


def dump(state: Any) -> str:
    """Return a state as YAML."""
    text = yaml.safe_dump(state, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return str(text)


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "no YAML"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
