"""Requests that add, change and remove switches."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pacer_controller.config import MAX_SWITCHES, ConfigError, switch_from
from pacer_controller.problems import FieldError, Problem, invalid
from pacer_controller.records import ResourceChange
from pacer_controller.schemas import stored
from pacer_controller.service.audit import audit, change_view
from pacer_controller.service.change import Staged
from pacer_controller.service.checks import Condition, bottleneck_ports, resource_name
from pacer_controller.service.commit import KeptError, locked
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch, Origin
from pacer_controller.service.views import switch_view
from pacer_controller.state_schema import OpenVSwitchSpec, P4RuntimeSpec
from pacer_controller.stores import SWITCHES, Written


def switch_for(service: Service, name: str, spec: P4RuntimeSpec | OpenVSwitchSpec) -> ManagedSwitch:
    """Return the existing switch if it has these settings; else a new one, not connected.

    Raises:
        ConfigError: the settings do not fit together.

    """
    found = service.switches.get(name)
    if found is not None and found.configured:
        return found
    config = switch_from(name, stored(spec))
    if found is not None and found.settings == config.settings():
        return found
    return service.manage(config, configured=False, revision=0)


def check_devices(switches: Sequence[ManagedSwitch]) -> None:
    """Raise the 409 when two switches are the same device, or there are too many."""
    if len(switches) > MAX_SWITCHES:
        raise Problem(
            HTTPStatus.CONFLICT,
            "limit-reached",
            "There are too many switches",
            f"a controller has at most {MAX_SWITCHES} switches",
        )
    devices: dict[tuple[object, ...], str] = {}
    for found in switches:
        device = found.device
        if device in devices:
            raise Problem(
                HTTPStatus.CONFLICT,
                "duplicate-switch",
                "Another switch is the same device",
                f"switches {devices[device]!r} and {found.name!r} are the same device",
            )
        devices[device] = found.name


async def put_switch(
    service: Service,
    name: str,
    spec: P4RuntimeSpec | OpenVSwitchSpec,
    condition: Condition,
    origin: Origin,
) -> tuple[dict[str, Any], bool]:
    """Create a switch or change its address; return it, and whether it is new.

    The resources of an existing switch stay.

    Raises:
        Problem: nothing was changed.

    """
    async for attempt in service.attempts():
        with attempt:
            async with service.lifecycle, locked(list(service.switches.values())):
                old = service.switches.get(name)
                result = await _put_switch(service, name, spec, condition, origin)
                attempt.idle = service.switches.get(name) is old
    return result


async def _put_switch(
    service: Service,
    name: str,
    spec: P4RuntimeSpec | OpenVSwitchSpec,
    condition: Condition,
    origin: Origin,
) -> tuple[dict[str, Any], bool]:
    """Make one attempt of `put_switch`; the caller holds all locks."""
    old = service.switches.get(name)
    condition.check(f"switch {name!r}", old.revision if old is not None else None)
    try:
        if old is not None and old.configured:
            if switch_from(name, stored(spec)).settings() != old.settings:
                raise _configured(name)
            return switch_view(old), False
        found = switch_for(service, name, spec)
    except ConfigError as error:
        field = FieldError("switch", str(error), "settings that fit together")
        raise invalid(f"switch {name!r}", [field]) from None
    if found is not old:
        _check_followed(service, name, found)
        others = [one for one in service.switches.values() if one is not old]
        check_devices([*others, found])
        view = switch_change(service, found)
        await replace_switches(service, [], {name: found}, [], origin, [view])
    return switch_view(found), old is None


async def delete_switch(service: Service, name: str, condition: Condition, origin: Origin) -> None:
    """Forget a switch and its resources; it keeps forwarding.

    Raises:
        Problem: nothing was changed.

    """
    async for attempt in service.attempts():
        with attempt:
            async with service.lifecycle, locked([found := service.switch(name)]):
                condition.check(f"switch {name!r}", found.revision)
                if found.configured:
                    raise _configured(name)
                _check_followed(service, name, None)
                views = [switch_change(service, found, leaves=True)]
                views += map(change_view, forgotten(found))
                await replace_switches(service, [], {}, [found], origin, views)


def _check_followed(service: Service, name: str, will_be: ManagedSwitch | None) -> None:
    """Raise the 409 if classes follow a bottleneck that the switch will no longer have."""
    users = [
        resource_name("class", one, found.name)
        for found in service.switches.values()
        for one, spec in found.desired.following.items()
        if spec.switch == name and not (will_be and spec.port in bottleneck_ports(will_be))
    ]
    if users:
        named = ", ".join(users[:5])
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""
        raise Problem(
            HTTPStatus.CONFLICT,
            "switch-in-use",
            "Classes follow the switch's bottleneck",
            f"switch {name!r} is followed by {named}{more}; let these classes follow another one "
            "or none first",
        )


def _configured(name: str) -> Problem:
    return Problem(
        HTTPStatus.CONFLICT,
        "configured-switch",
        "The switch belongs to the configuration",
        f"switch {name!r} is defined in the configuration file or on the command line of the "
        "controller: change it there",
    )


def switch_change(
    service: Service, found: ManagedSwitch, *, leaves: bool = False
) -> dict[str, Any]:
    """Return the clients' view of a switch that is added, changed or removed."""
    old = service.switches.get(found.name)
    return {
        "op": "delete" if leaves else "create" if old is None else "update",
        "kind": "switch",
        "switch": found.name,
        "name": found.name,
        "before": old.settings if old is not None else None,
        "after": None if leaves else found.settings,
    }


def forgotten(found: ManagedSwitch) -> list[ResourceChange]:
    """Return the removal of each resource of a switch."""
    return [
        ResourceChange(found.name, kind, name, record, None)
        for kind, name, record in found.desired.all()
    ]


async def replace_switches(
    service: Service,
    staged: Sequence[Staged],
    new: Mapping[str, ManagedSwitch],
    leaving: Sequence[ManagedSwitch],
    origin: Origin,
    views: Sequence[dict[str, Any]],
    bases: Mapping[str, int] | None = None,
) -> Written:
    """Make staged changes together with the addition and removal of switches, all or nothing.

    Returns:
        The outcome of the write.

    Raises:
        Problem: nothing was changed.
        StaleError: nothing was changed; plan it again.
        UncertainError: the change may be stored.
        StoreError: nothing was changed.

    """
    settings: dict[str, tuple[Mapping[str, Any], int] | None] = {
        name: (found.settings, found.revision) for name, found in new.items()
    }
    settings |= {found.name: None for found in leaving}
    lost = [change for found in leaving for change in forgotten(found)]
    planned_on = {found.name: found.last_change for found in leaving} | dict(bases or {})
    if settings:
        planned_on[SWITCHES] = service.base_of(SWITCHES)
    drafts = [audit(origin, views)]
    kept: KeptError | None = None
    try:
        written = await service.committer.make(staged, drafts, settings, lost, planned_on)
    except KeptError as error:
        if error.written is None:
            raise
        # It stays as a whole: the resources and the list of switches.
        written, kept = error.written, error
    gone = [*leaving, *(old for name in new if (old := service.switches.get(name)) is not None)]
    # The switches and the list's revision change at once, for a reader of both.
    service.note_base(SWITCHES, written.bases.get(SWITCHES, service.base_of(SWITCHES)))
    for found in leaving:
        del service.switches[found.name]
        service.store.forget(found.name)
        service.note_base(found.name, written.bases.get(found.name, found.last_change))
    for name, found in new.items():
        found.revision = written.revision
        service.switches[name] = found
    await service.halt(gone)
    for found in new.values():
        service.launch(found)
    if kept is not None:
        raise kept
    return written
