"""Changes as clients see them, and their audit events."""

from collections.abc import Mapping, Sequence
from typing import Any

from pacer_controller import events as event_log
from pacer_controller.kept_events import Event
from pacer_controller.problems import shorten
from pacer_controller.records import ResourceChange
from pacer_controller.schemas import stored
from pacer_controller.service.checks import resource_name
from pacer_controller.service.managed import Origin

EVENT_CHANGES = 20
"""Most changes that an audit event lists."""


def change_view(change: ResourceChange) -> dict[str, Any]:
    """Return a change as clients see it."""
    op = "delete" if change.after is None else "create" if change.before is None else "update"
    return {
        "op": op,
        "kind": change.kind,
        "switch": change.switch,
        "name": change.name,
        "before": stored(change.before.spec) if change.before is not None else None,
        "after": stored(change.after.spec) if change.after is not None else None,
    }


def audit(origin: Origin, views: Sequence[dict[str, Any]]) -> Event:
    """Return the audit event of changes."""
    message = _message(views[0])
    if len(views) > 1:
        message += f" (and {len(views) - 1} more changes)"
    switches = {view["switch"] for view in views}
    data = {
        "user": origin.user,
        "actor": origin.actor,
        "client": origin.client,
        "method": origin.method,
        "path": origin.path,
        "changes": list(views[:EVENT_CHANGES]),
        "count": len(views),
    }
    return event_log.draft("change", switches.pop() if len(switches) == 1 else None, message, data)


def _message(view: dict[str, Any]) -> str:
    """Describe a change in one line, with the differences."""
    name = view["name"]
    what = f"switch {name!r}"
    if view["kind"] != "switch":
        what = resource_name(view["kind"], name, view["switch"])
    if view["op"] != "update":
        return f"{what}: {view['op']}d"
    before, after = _flat(view["before"] or {}), _flat(view["after"] or {})
    differences = [
        f"{key} {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return f"{what}: {', '.join(differences[:4])}"


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings by name; nested settings have the name `outer.inner`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[above + key] = value
    return flat


def _shown(value: object) -> str:
    return "none" if value is None else shorten(str(value))
