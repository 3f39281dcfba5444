"""Writes and snapshots as JSON, between two controllers of the same version."""

from collections.abc import Mapping, Sequence
from typing import Any

from pacer_controller.records import Entry, ResourceChange, Snapshot, index_of, record_of
from pacer_controller.schemas import stored


class WireError(Exception):
    """The other controller's message is invalid; the text says why."""


def _change(change: ResourceChange) -> list[Any]:
    record = change.after
    kept = None
    if record is not None:
        kept = [index_of(record), stored(record.spec), record.revision]
    return [change.switch, change.kind, change.name, kept]


def _change_from(value: Sequence[Any]) -> ResourceChange:
    switch, kind, name, kept = value
    record = None if kept is None else record_of(kind, name, *kept)
    return ResourceChange(switch, kind, name, None, record)


def _switches_from(value: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], int]]:
    return {name: (settings, int(revision)) for name, (settings, revision) in value.items()}


def entry(one: Entry) -> dict[str, Any]:
    """Return a write as JSON."""
    return {
        "sequence": one.sequence,
        "revision": one.revision,
        "changes": [_change(change) for change in one.changes],
        "switches": dict(one.switches),
        "events": list(one.events),
    }


def entry_from(value: Mapping[str, Any]) -> Entry:
    """Return the write that JSON stands for.

    Raises:
        WireError: it stands for none.

    """
    try:
        removed = {name: None for name, one in value["switches"].items() if one is None}
        made = {name: one for name, one in value["switches"].items() if one is not None}
        return Entry(
            int(value["sequence"]),
            int(value["revision"]),
            [_change_from(change) for change in value["changes"]],
            {**removed, **_switches_from(made)},
            list(value["events"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"a write that cannot be read: {error!r}") from None


def snapshot(one: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON."""
    return {
        "epoch": one.epoch,
        "sequence": one.sequence,
        "revision": one.revision,
        "resources": [_change(change) for change in one.resources],
        "switches": dict(one.switches),
    }


def snapshot_from(value: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot that JSON stands for.

    Raises:
        WireError: it stands for none.

    """
    try:
        return Snapshot(
            int(value["epoch"]),
            int(value["sequence"]),
            int(value["revision"]),
            [_change_from(change) for change in value["resources"]],
            _switches_from(value["switches"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"a snapshot that cannot be read: {error!r}") from None
