"""What each role may do: the one table of it. docs/security.md shows the same.

The first rule that fits a request says which role it needs. A role may do what those before it in
`users.ROLES` may.
"""

import re
from typing import NamedTuple

from pacer_controller.users import ROLES, Role


class Rule(NamedTuple):
    """One line of the table.

    Attributes:
        role: the least that a request needs.
        methods: of requests; empty: any.
        path: of requests, a regular expression for all of it.
        text: the same, as docs/security.md has it.

    """

    role: Role
    methods: tuple[str, ...]
    path: str
    text: str


OPEN = "/|/dashboard|/dashboard/.*|/healthz|/readyz|/docs|/openapi[.]json|/static-offline-docs/.*"
"""Paths that need no token."""

RULES = (
    Rule("read", ("GET", "HEAD", "OPTIONS"), ".*", "GET of everything"),
    Rule(
        "rates",
        ("PUT", "DELETE"),
        "/v1/switches/[^/]+/(classes|meters|flows)/[^/]+",
        "PUT and DELETE of classes, meters and flows",
    ),
    Rule(
        "rates",
        ("POST", "DELETE"),
        "/qos/(rules|meter)/.+",
        "POST and DELETE of Ryu's `/qos/rules` and `/qos/meter`",
    ),
    Rule(
        "all",
        (),
        ".*",
        "everything: also switches, ports, state documents, and Ryu's `/qos/queue`",
    ),
)

_OPEN = re.compile(OPEN, re.DOTALL)
_RULES = [(rule, re.compile(rule.path, re.DOTALL)) for rule in RULES]


def is_open(path: str) -> bool:
    """Whether a path needs no token."""
    return _OPEN.fullmatch(path) is not None


def needed(method: str, path: str) -> Role:
    """Return the least role that a request needs."""
    return next(
        rule.role
        for rule, pattern in _RULES
        if (not rule.methods or method in rule.methods) and pattern.fullmatch(path)
    )


def allows(role: Role, wanted: Role) -> bool:
    """Whether a role may do what another may."""
    return ROLES.index(role) >= ROLES.index(wanted)


def enough(wanted: Role) -> tuple[Role, ...]:
    """Return the roles that may do what one may."""
    return ROLES[ROLES.index(wanted) :]
