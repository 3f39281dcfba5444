"""The rights of each role. This is the only table of them; docs/security.md shows the same one.

The first rule that matches a request names the role that the request needs. A role has the rights
of the roles before it in `users.ROLES`.
"""

import re
from typing import NamedTuple

from pacer_controller.users import ROLES, Role


class Rule(NamedTuple):
    """One row of the table.

    Attributes:
        role: the lowest role that a matching request needs.
        methods: the methods of matching requests; empty: any.
        path: a regular expression for the whole path of matching requests.
        text: the description of these requests in docs/security.md.

    """

    role: Role
    methods: tuple[str, ...]
    path: str
    text: str


OPEN = "/|/dashboard|/dashboard/.*|/healthz|/readyz|/docs|/openapi[.]json|/static-offline-docs/.*"
"""Paths that need no token."""

RULES = (
    # The thread that paces looks at each packet for a trace.
    Rule("rates", ("GET", "HEAD"), "/v1/switches/[^/]+/traces", "GET of traces of packets"),
    Rule("read", ("GET", "HEAD", "OPTIONS"), ".*", "GET of everything else"),
    Rule("read", ("POST",), "/v1/switches/[^/]+/dry-run", "POST of a dry run"),
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
    """Return the lowest role that a request needs."""
    return next(
        rule.role
        for rule, pattern in _RULES
        if (not rule.methods or method in rule.methods) and pattern.fullmatch(path)
    )


def allows(role: Role, wanted: Role) -> bool:
    """Whether a role has all rights of another."""
    return ROLES.index(role) >= ROLES.index(wanted)


def enough(wanted: Role) -> tuple[Role, ...]:
    """Return the roles that have all rights of a role."""
    return ROLES[ROLES.index(wanted) :]
