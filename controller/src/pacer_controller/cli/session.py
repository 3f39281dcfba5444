"""State of one run of the command: where the controller is, how to print."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pacer_controller.cli.connection import (
    DEFAULT_URL,
    MAX_PAGES,
    Connection,
    RefusedError,
    path,
)
from pacer_controller.cli.resources import Kind


class Session:
    """The connection to the controller, whose address comes from command line or environment."""

    def __init__(self) -> None:
        self.url = os.environ.get("PACER_URL") or DEFAULT_URL
        self.token = os.environ.get("PACER_TOKEN") or None
        self.authority = os.environ.get("PACER_CA") or None
        self.as_json = False
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection, made when it is first needed."""
        if self._connection is None:
            self._connection = Connection(self.url, self.token, self.authority)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def print_json(self, value: Any) -> None:
        """Print a value as JSON."""
        print(json.dumps(value, indent=2, ensure_ascii=False))

    def print_line(self, value: Any) -> None:
        """Print a value as JSON on one line."""
        print(json.dumps(value, ensure_ascii=False))

    def say(self, text: str) -> None:
        """Tell something beside the result, on standard error."""
        print(text, file=sys.stderr)

    def say_pending(self, switch: str, view: Mapping[str, Any]) -> None:
        """Tell when a stored resource will be applied, if it is not yet."""
        if view.get("state") != "pending":
            return
        # The reason is another one if another controller drives the switch.
        is_away = str(view.get("state_reason") or "").startswith("switch is ")
        when = "when {} reconnects" if is_away else "as soon as a controller brings it to {}"
        self.say(f"pacer: saved; applied {when.format(switch)}")

    # ---- reading ----

    def pages(
        self, place: str, plural: str, query: Mapping[str, str | int] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Give the members of a list, over all its pages."""
        for _ in range(MAX_PAGES):
            body = self.connection.get(place, query)
            yield from body[plural]
            place, query = body.get("next") or "", None
            if not place:
                return

    def switches(self) -> list[dict[str, Any]]:
        """Return all switches."""
        return list(self.pages("/v1/switches", "switches"))

    def resources(
        self, kind: Kind, switch: str, query: Mapping[str, str | int] | None = None
    ) -> list[dict[str, Any]]:
        """Return all resources of a kind on a switch; none where its program has no such thing."""
        try:
            return list(self.pages(kind.path(switch), kind.plural, query))
        except RefusedError as error:
            if error.status == 409:
                return []
            raise

    # ---- writing ----

    def create(self, kind: Kind, switch: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a resource; an existing one is not changed.

        Raises:
            RefusedError: it exists already.

        """
        try:
            return self.write(kind, switch, name, body, {"If-None-Match": "*"})
        except RefusedError as error:
            if error.status != 412:
                raise
            where = "" if kind.name == "switch" else f" on {switch}"
            detail = (
                f"{kind.name} {name!r}{where} exists already; change it with: "
                f"pacer {kind.name} set {switch}{'' if kind.name == 'switch' else f' {name}'} ..."
            )
            raise RefusedError({**error.problem, "detail": detail}) from None

    def read(self, kind: Kind, switch: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a resource to change, and the headers that guard against changes by others."""
        response = self.connection.request("GET", kind.path(switch, name))
        etag = response.headers.get("ETag")
        view = dict(response.json())
        if kind.name == "switch":
            # A switch's answer has requested and actual values under the same names.
            whole = self.connection.get("/v1/state")["switches"]
            view = dict(whole.get(name, {}).get("switch") or {})
        return view, {"If-Match": etag} if etag else {}

    def write(
        self,
        kind: Kind,
        switch: str,
        name: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a resource or replace it as a whole; with the headers of `read`, change it.

        Raises:
            RefusedError: somebody else has changed it since (412), or it is wrong.

        """
        response = self.connection.request("PUT", kind.path(switch, name), body, headers=headers)
        return dict(response.json())

    def delete(self, kind: Kind, switch: str, name: str) -> None:
        """Delete a resource."""
        self.connection.request("DELETE", kind.path(switch, name))

    def delete_together(self, kind: Kind, switch: str, names: Sequence[str]) -> None:
        """Delete several resources of a switch, all or none.

        Raises:
            RefusedError: one of them does not exist or is used, or the state has changed meanwhile.

        """
        target = path("switches", switch, "state")
        response = self.connection.request("GET", target)
        state = dict(response.json())
        for name in names:
            if name not in state[kind.plural]:
                # The controller's error says that there is none, and suggests similar names.
                self.connection.get(kind.path(switch, name))
        state[kind.plural] = {n: v for n, v in state[kind.plural].items() if n not in names}
        self.connection.request(
            "PUT", target, state, headers={"If-Match": response.headers.get("ETag", "*")}
        )
