"""Reads, compares and replaces the whole desired state at once."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from pacer_controller.config import ConfigError
from pacer_controller.problems import FieldErrors, Problem, invalid
from pacer_controller.records import KINDS, PLURALS, ResourceChange
from pacer_controller.schemas import stored
from pacer_controller.service.audit import change_view
from pacer_controller.service.change import Staged
from pacer_controller.service.checks import (
    Checker,
    Condition,
    Spec,
    follow_problems,
    pacing,
)
from pacer_controller.service.commit import locked
from pacer_controller.service.core import Service, make_record
from pacer_controller.service.managed import Allocation, ManagedSwitch, Origin
from pacer_controller.service.switches import (
    check_devices,
    forgotten,
    replace_switches,
    switch_change,
    switch_for,
)
from pacer_controller.state_schema import StateSpec, SwitchStateSpec

Wanted = tuple[ManagedSwitch, SwitchStateSpec, str]
"""A switch, its desired state, and the path of the desired state in the document."""

LISTED = 1000
"""Most changes that an answer lists."""


def switch_state(found: ManagedSwitch) -> dict[str, Any]:
    """Return the desired state of one switch, in the form of a request body."""
    return {
        member: {name: stored(record.spec) for name, record in sorted(found.stored(kind).items())}
        for kind, member in PLURALS.items()
    }


def whole_state(service: Service) -> dict[str, Any]:
    """Return the desired state of all switches, in the form of a request body."""
    return {
        "switches": {
            name: {"switch": found.settings, **switch_state(found)}
            for name, found in sorted(service.switches.items())
        }
    }


def _plan(
    found: ManagedSwitch, spec: SwitchStateSpec, path: str, errors: FieldErrors
) -> tuple[dict[tuple[str, str], Spec], list[tuple[str, str]]]:
    """Return the differences from the desired state: resources to put, resources to drop."""
    puts: dict[tuple[str, str], Spec] = {}
    drops: list[tuple[str, str]] = []
    checker = Checker(found, spec.classes, spec.meters, spec.ports)
    for kind in KINDS:
        wanted: Mapping[str, Spec] = getattr(spec, PLURALS[kind])
        present = found.desired.resources[kind]
        for name, one in wanted.items():
            errors.add_below(f"{path}{PLURALS[kind]}.{name}.", checker.problems(name, one))
            if name not in present or present[name].spec != one:
                puts[kind, name] = one
        drops += [(kind, name) for name in present if name not in wanted]
    if (spec.classes or spec.flows or spec.meters) and not errors:
        pacing(found)
    return puts, drops


def _check_following(
    service: Service,
    wanted: Mapping[str, Wanted],
    leaving: list[ManagedSwitch],
    errors: FieldErrors,
) -> None:
    """Check the classes that follow a bottleneck against the new set of switches."""
    others = [
        found
        for name, found in service.switches.items()
        if name not in wanted and found not in leaving
    ]
    switches = {found.name: found for found in others}
    switches |= {name: found for name, (found, _, _) in wanted.items()}
    count = sum(len(found.desired.following) for found in others)
    for _, spec, path in wanted.values():
        for name, one in spec.classes.items():
            if one.follow is not None:
                found = follow_problems(one.follow, count, switches)
                errors.add_below(f"{path}classes.{name}.", found)
                count += 1


def _stage(
    staged: Staged,
    puts: Mapping[tuple[str, str], Spec],
    drops: list[tuple[str, str]],
) -> None:
    """Stage the changes: deletions first, and flows before the classes and meters they use.

    Raises:
        Problem: the changes do not fit; nothing is staged.

    """
    found = staged.found
    allocation = Allocation(found)
    changes = []
    try:
        for kind, name in reversed(drops):
            old = found.desired.resources[kind][name]
            changes.append(ResourceChange(found.name, kind, name, old, None))
        for (kind, name), spec in puts.items():
            old = found.desired.resources[kind].get(name)
            record = make_record(kind, name, spec, old, allocation)
            changes.append(ResourceChange(found.name, kind, name, old, record))
        staged.add(changes, allocation.fresh)
    except Problem:
        allocation.undo()
        raise


async def put_switch_state(
    service: Service,
    name: str,
    spec_for: Callable[[ManagedSwitch], SwitchStateSpec],
    condition: Condition,
    origin: Origin,
    dry_run: bool,
) -> dict[str, Any]:
    """Replace the desired state of one switch, all or nothing.

    Args:
        service: the service that has the switch.
        name: the name of the switch.
        spec_for: returns the new state. It is called under the lock, in each attempt, so that it
            can derive the new state from the present one.
        condition: the condition of the request.
        origin: the origin of the request.
        dry_run: whether to return the changes without making them.

    Returns:
        The changes, and the revision of the switch's state with them.

    Raises:
        Problem: nothing was changed.

    """
    async for attempt in service.attempts():
        with attempt:
            while True:
                found = service.switch(name)
                async with locked([found]):
                    if not service.holds(found):
                        # The switch was replaced while this waited.
                        continue
                    attempt.on(found)
                    condition.check(f"state of switch {name!r}", found.last_change)
                    wanted = {name: (found, spec_for(found), "")}
                    revision = found.last_change
                    result = await _put(service, wanted, [], origin, dry_run, revision)
                    attempt.idle = dry_run or not result["changes"]
                    break
    return result


async def put_whole_state(
    service: Service, spec: StateSpec, condition: Condition, origin: Origin, dry_run: bool
) -> dict[str, Any]:
    """Replace the desired state of all switches, all or nothing.

    Returns:
        The changes, and the revision of the state with them.

    Raises:
        Problem: nothing was changed.

    """
    async for attempt in service.attempts():
        with attempt:
            async with service.lifecycle, locked(list(service.switches.values())):
                revision = service.revision
                condition.check("state", revision)
                wanted, leaving = _wanted(service, spec)
                result = await _put(service, wanted, leaving, origin, dry_run, revision)
                attempt.idle = dry_run or not result["changes"]
    return result


def _wanted(service: Service, spec: StateSpec) -> tuple[dict[str, Wanted], list[ManagedSwitch]]:
    """Return the switches of a document, and the switches that it removes.

    Raises:
        Problem: the document does not fit.

    """
    wanted: dict[str, Wanted] = {}
    errors = FieldErrors()
    for name, one in spec.switches.items():
        path = f"switches.{name}."
        if one.switch is None:
            wanted[name] = (service.switch(name), one, path)
            continue
        try:
            wanted[name] = (switch_for(service, name, one.switch), one, path)
        except ConfigError as error:
            errors.add(f"{path}switch", str(error), "settings that fit")
    if errors:
        raise invalid("state", errors)
    leaving = []
    for name, found in service.switches.items():
        if name not in wanted and found.configured:
            wanted[name] = (found, SwitchStateSpec(), f"switches.{name}.")
        elif name not in wanted:
            leaving.append(found)
    check_devices([found for found, _, _ in wanted.values()])
    return wanted, leaving


async def _put(
    service: Service,
    wanted: Mapping[str, Wanted],
    leaving: list[ManagedSwitch],
    origin: Origin,
    dry_run: bool,
    revision: int,
) -> dict[str, Any]:
    """Replace desired states, as of a revision; the caller holds the locks."""
    errors = FieldErrors()
    plans = {found: _plan(found, spec, path, errors) for found, spec, path in wanted.values()}
    _check_following(service, wanted, leaving, errors)
    if errors:
        raise invalid("state", errors)
    new = {found.name: found for found in plans if service.switches.get(found.name) is not found}
    views = [switch_change(service, found) for found in new.values()]
    for found in leaving:
        views.append(switch_change(service, found, leaves=True))
        views += map(change_view, forgotten(found))
    staged: list[Staged] = []
    with contextlib.ExitStack() as undo:
        for found, plan in plans.items():
            staged.append(Staged(found))
            _stage(staged[-1], *plan)
            undo.callback(staged[-1].undo)
        views += [change_view(change) for one in staged for change in one.changes]
        total = sum(len(getattr(s, m)) for _, s, _ in wanted.values() for m in PLURALS.values())
        result = _result(views, total, dry_run, revision)
        if dry_run:
            return result
        undo.pop_all()
    if views:
        bases = {found.name: found.last_change for found in plans}
        written = await replace_switches(service, staged, new, leaving, origin, views, bases)
        result["revision"] = max(written.bases.values())
    result["switches"] = {found.name: found.brought() for found in plans}
    return result


def _result(
    views: list[dict[str, Any]], total: int, dry_run: bool, revision: int
) -> dict[str, Any]:
    summary = dict.fromkeys(("create", "update", "delete"), 0)
    for view in views:
        summary[view["op"]] += 1
    of_switches = [view for view in views if view["kind"] == "switch"]
    put = summary["create"] + summary["update"]
    put -= sum(view["op"] != "delete" for view in of_switches)
    return {
        "dry_run": dry_run,
        "revision": revision,
        "summary": {**summary, "unchanged": total - put},
        "changes": views[:LISTED],
        "truncated": len(views) > LISTED,
    }
