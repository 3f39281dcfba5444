"""The service: all switches, and the requests on them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pacer_controller import __version__
from pacer_controller.config import AnySwitchConfig, ConfigError, OpenVSwitchConfig, switch_from
from pacer_controller.events import EventLog
from pacer_controller.p4rt import P4Switch
from pacer_controller.permits import Permits
from pacer_controller.problems import FieldError, Problem, invalid, not_found
from pacer_controller.records import (
    ClassRecord,
    FlowRecord,
    MeterRecord,
    PortRecord,
    Record,
    stamped,
)
from pacer_controller.refusals import Refusals
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec
from pacer_controller.service import views
from pacer_controller.service.change import Change
from pacer_controller.service.checks import (
    NO_CONDITION,
    Checker,
    Condition,
    Spec,
    follow_problems,
    in_use,
    pacing,
    resource_name,
    revision_of,
)
from pacer_controller.service.commit import Committer
from pacer_controller.service.managed import Allocation, ManagedSwitch, Origin, Samples
from pacer_controller.service.sample import SHARED_S
from pacer_controller.service.statistics import statistics
from pacer_controller.service.sync import Sync
from pacer_controller.southbound import Driver, DriverContext
from pacer_controller.stores import SWITCHES, StaleError, Status, Store, StoreError
from pacer_controller.switch_tls import SwitchTls

_LOG = logging.getLogger(__name__)

_ANONYMOUS = Origin()

PROBE_S = 1.0
"""Shortest time between two writes that only test whether the store takes them."""

PROBE_MOST_S = 2.0
"""Longest time of a probe: a store that takes longer counts as not writable."""

ATTEMPTS = 20
"""Most attempts at a change when other controllers write to the same switch."""

PAUSE_S = 0.1
"""Pause between two attempts at a change of several switches."""

MOVE_S = 2.0
"""Longest wait for the conflicting write."""

DENIED_EVERY_S = 60.0
DENIED_BURST = 60
"""Denied requests have an event in so many seconds in the long run, and so many at once. Otherwise
guessing would displace the events of changes, of which the store keeps EVENTS_KEPT."""


class Attempt:
    """One attempt at a change, which a write of another controller may overtake.

    An attempt that is refused, or has nothing to change, is repeated if memory may have been stale.

    Args:
        last: whether this is the last attempt.
        current: whether memory has all writes of other controllers.

    """

    def __init__(self, *, last: bool, current: bool) -> None:
        self._last = last
        self._current = current
        self._found: ManagedSwitch | None = None
        self._base = 0
        self.overtaken = False
        self.refused = False
        self.idle = False
        """Whether there was nothing to change, according to the state in memory."""

    def on(self, found: ManagedSwitch) -> None:
        """Record the switch, and its revision, that the change is planned on."""
        self._found, self._base = found, found.last_change

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.overtaken = isinstance(error, StaleError) and not self._last
        unsure = self.idle if error is None else isinstance(error, Problem)
        self.refused = unsure and not self._last and not self._current
        return self.overtaken or self.refused

    async def caught_up(self) -> None:
        """Wait for the write that has overtaken this attempt."""
        if self._found is not None:
            await self._found.moved(self._base, MOVE_S)
        else:
            await asyncio.sleep(PAUSE_S)


class Service:
    """All switches, and the requests on them.

    Args:
        switches: the switches of the configuration.
        compiled: the directory of compiled programs.
        store: the store of desired state; the caller closes it.
        reconcile_interval_s: the period at which each switch is read back for foreign changes, in
            seconds; 0: never.
        switch_tls: the certificates for connections to switches over TLS.

    Raises:
        ConfigError: a switch's program files are missing.

    """

    def __init__(
        self,
        switches: Sequence[AnySwitchConfig],
        compiled: Path,
        store: Store,
        reconcile_interval_s: float = 30.0,
        switch_tls: SwitchTls | None = None,
    ) -> None:
        self.store = store
        self.events = EventLog(store)
        self._sync = Sync(self)
        self.committer = Committer(store, self.events, self._sync.take_before)
        self._compiled = compiled
        self._interval_s = reconcile_interval_s
        self._switch_tls = switch_tls or SwitchTls()
        self._permits = Permits()
        self._running = False
        self.refusals = Refusals()
        self._probed_s = self._denied_full_s = float("-inf")
        """The time of the last probe, and that when the allowance of DENIED_BURST is full again."""
        self._probing: asyncio.Task[bool] | None = None
        self.closing = asyncio.Event()
        """Set when streams should end, before the service stops."""
        self.lifecycle = asyncio.Lock()
        """Held while switches are added, changed or removed; taken before the locks of switches."""
        self._bases = {name: store.base(name) for name in (*store.known(), SWITCHES)}
        self._loaded = store.revision
        self._configured = tuple(switches)
        self.switches: dict[str, ManagedSwitch] = {}
        self.switches = self._manage_all()

    def _manage_all(self) -> dict[str, ManagedSwitch]:
        """Make all switches of the configuration and of the store."""
        made: dict[str, ManagedSwitch] = {}
        for config in self._configured:
            made[config.name] = self.manage(config, configured=True, revision=0)
        for name, (settings, revision) in self.store.switches().items():
            if name in made:
                # A switch of the configuration takes precedence.
                continue
            try:
                config = switch_from(name, settings)
                managed = self.manage(config, configured=False, revision=revision)
            except ConfigError as error:
                _LOG.error("switch %s of the store is left out: %s", name, error)
                continue
            made[name] = managed
        return made

    def manage(self, config: AnySwitchConfig, *, configured: bool, revision: int) -> ManagedSwitch:
        """Make a switch with its driver, not yet connected.

        Raises:
            ConfigError: the program's files are missing.

        """
        name = config.name
        managed = ManagedSwitch(
            name,
            config.settings(),
            self.store.desired(name),
            configured,
            revision,
            self.base_of(name),
            status=lambda: self.store.status(name),
        )
        managed.attach(self._driver(config, managed))
        return managed

    def base_of(self, switch: str) -> int:
        """Return the revision up to which a switch, or the list of switches, is known."""
        found = self.switches.get(switch)
        return self._bases.get(switch, 0) if found is None else found.last_change

    def note_base(self, switch: str, base: int) -> None:
        """Record the revision of the list of switches, or of a switch that is not managed."""
        self._bases[switch] = base

    def _driver(self, config: AnySwitchConfig, managed: ManagedSwitch) -> Driver:
        def notify(kind: str, message: str, data: dict[str, Any]) -> None:
            self.events.record(kind, config.name, message, data)

        context = DriverContext(
            managed.ordered,
            managed.lock,
            self.store.tenure(config.name),
            self._interval_s,
            notify,
            lambda: Checker.of(managed).unfit(managed.desired),
            self._switch_tls,
            self._permits,
        )
        if isinstance(config, OpenVSwitchConfig):
            # Imported only if needed: os-ken takes half a second to import.
            from pacer_controller.openvswitch import OpenVSwitch

            return OpenVSwitch(config, context)
        return P4Switch(config, self._compiled, context)

    # ---- life ----

    async def start(self) -> None:
        """Start to connect to the switches; this does not wait for them."""
        self._running = True
        self.events.record("controller", None, "the controller starts", {"version": __version__})
        for managed in self.switches.values():
            self.launch(managed)
        await self.store.start(
            self._sync,
            [config.name for config in self._configured],
            lambda: list(self.switches),
            self._report,
        )

    def _report(self, switch: str) -> Status:
        """Return the status of a switch that this controller drives, for other controllers."""
        found = self.switches.get(switch)
        if found is None:
            return Status("", "pending")
        driver = found.driver
        return Status("", driver.state.value, dict(driver.failed), found.brought_to)

    def launch(self, managed: ManagedSwitch) -> None:
        """Start to connect to a switch, if the service runs."""
        if self._running:
            run = managed.driver.run()
            managed.task = asyncio.create_task(run, name=f"switch {managed.name}")

    async def stop(self) -> None:
        """Disconnect from the switches, which keep forwarding."""
        self._running = False
        self.closing.set()
        await self._sync.stop()
        await self.halt(list(self.switches.values()))
        self.events.record("controller", None, "the controller stops", {"version": __version__})
        await self.events.flush()
        await self.store.stop()

    @property
    def stopping(self) -> bool:
        """Whether streams should end, because the service is about to stop."""
        return self.closing.is_set()

    async def until(self, wait: Awaitable[None], timeout_s: float) -> bool:
        """Wait for `wait` until a timeout or the service's end; return whether it completed."""
        waiting = [asyncio.ensure_future(wait), asyncio.ensure_future(self.closing.wait())]
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            return waiting[0] in done
        finally:
            for task in waiting:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*waiting, return_exceptions=True)

    async def halt(self, switches: Sequence[ManagedSwitch]) -> None:
        """Disconnect from some switches."""
        tasks = [managed.task for managed in switches if managed.task is not None]
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                _LOG.error("a switch's task ended with %r", result)
        for managed in switches:
            managed.task = None

    # ---- the state as a whole ----

    @property
    def revision(self) -> int:
        """Revision up to which memory has all writes of the store.

        The store may already have newer writes. If a write of several is not yet in memory, this is
        a revision before it, so that no client takes that write for seen.
        """
        newest = max(map(self.base_of, {*self._bases, *self.switches}))
        if not self.store.shared:
            return newest
        return min(newest, max(self._loaded, self._sync.complete()))

    async def writable(self) -> bool:
        """Whether the store takes writes, by a probe that is at most PROBE_S old or under way.

        A call during a probe waits for it, so that no client's probe is another one's wrong answer.
        """
        now_s = time.monotonic()
        probing = self._probing
        if probing is None or (probing.done() and now_s - self._probed_s >= PROBE_S):
            self._probed_s = now_s
            probing = self._probing = asyncio.create_task(self._probe(), name="probe")
        if not probing.done():
            # `wait` does not cancel the probe if this caller is cancelled: others may wait for it.
            await asyncio.wait([probing])
        return probing.result()

    async def _probe(self) -> bool:
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PROBE_MOST_S):
                await self.store.probe()
            return True
        return False

    def count_denied(self, cause: str, message: str, data: Mapping[str, Any]) -> None:
        """Count a denied request; record an event, unless there were many of late."""
        self.refusals.count(cause)
        now_s = time.monotonic()
        if self._denied_full_s <= now_s + (DENIED_BURST - 1) * DENIED_EVERY_S:
            self._denied_full_s = max(self._denied_full_s, now_s) + DENIED_EVERY_S
            self.events.record("denied", None, message, data)

    # ---- switches ----

    def switch(self, name: str) -> ManagedSwitch:
        """Return a switch or raise the 404."""
        found = self.switches.get(name)
        if found is None:
            raise not_found("switch", name, self.switches)
        return found

    async def switch_view(self, name: str) -> dict[str, Any]:
        """Return the view of a switch, with the present state of its ports."""
        found = await self.refresh_ports(name)
        return views.switch_view(found)

    async def refresh_ports(self, name: str) -> ManagedSwitch:
        """Ask a switch for its ports, and return the switch."""
        found = self.switch(name)
        await found.driver.refresh_ports()
        return found

    # ---- resources ----

    def _with(self, switch: str, kind: str) -> ManagedSwitch:
        found = self.switch(switch)
        return found if kind == "port" else pacing(found)

    def get(self, switch: str, kind: str, name: str) -> dict[str, Any]:
        """Return a resource or raise the 404."""
        found = self._with(switch, kind)
        if kind == "port" and any(str(info.port) == name for info in found.driver.ports):
            return next(p for p in views.port_views(found) if str(p["port"]) == name)
        known = found.stored(kind)
        if name not in known:
            ports = [str(info.port) for info in found.driver.ports]
            names = ports if kind == "port" else list(known)
            raise not_found(kind, name, names, f" on switch {switch!r}")
        return views.record_view(found, kind, known[name])

    def get_all(self, switch: str, kind: str) -> list[dict[str, Any]]:
        """Return all resources of a kind, by name (ports: by number)."""
        found = self._with(switch, kind)
        if kind == "port":
            return views.port_views(found)
        of_kind = found.stored(kind)
        return [views.record_view(found, kind, of_kind[name]) for name in sorted(of_kind)]

    async def put(
        self,
        switch: str,
        kind: str,
        name: str,
        spec: Spec,
        condition: Condition = NO_CONDITION,
        origin: Origin = _ANONYMOUS,
    ) -> tuple[dict[str, Any], bool]:
        """Create or replace a resource; return it, and whether it is new.

        Raises:
            Problem: nothing was changed.

        """
        resource = resource_name(kind, name, switch)
        async for attempt in self.attempts():
            with attempt:
                async with self._turn(switch, kind, name, spec, origin) as (found, change):
                    attempt.on(found)
                    old: Record | None = found.desired.resources[kind].get(name)
                    condition.check(resource, revision_of(old))
                    errors = self._problems(found, kind, name, spec)
                    if errors:
                        raise invalid(resource, errors)
                    record: Record
                    if old is not None and old.spec == spec:
                        record, attempt.idle = old, True
                    else:
                        record = make_record(kind, name, spec, old, change.allocation)
                        change.replace(old, record)
                    # The view is made now, since a class or meter that the resource refers to may
                    # be deleted after the commit.
                    view = views.record_view(found, kind, record)
                    record = stamped(record, await change.commit())
        return views.as_it_is(found, kind, record, view), old is None

    def _problems(self, found: ManagedSwitch, kind: str, name: str, spec: Spec) -> list[FieldError]:
        """Return the errors in a requested resource."""
        checker = Checker.of(found, name, spec)
        errors = checker.problems(name, spec)
        if isinstance(spec, ClassSpec):
            errors += self._follow_problems(found.name, name, spec)
        if kind == "port":
            errors += checker.too_fast_for(int(name), found.desired)
        return errors

    async def attempts(self) -> AsyncIterator["Attempt"]:
        """Yield attempts at a change, until one needs no repetition (`Attempt`).

        Raises:
            StoreError: there was nothing to change, but the file may differ from memory.

        """
        current = not self.store.shared
        for number in range(ATTEMPTS):
            attempt = Attempt(last=number == ATTEMPTS - 1, current=current)
            yield attempt
            if attempt.refused:
                await self.catch_up()
                current = True
            elif attempt.overtaken:
                await attempt.caught_up()
            else:
                if attempt.idle and self.store.broken is not None:
                    # The last write may be in the file or not, so the requested state may be gone
                    # after the restart.
                    await self.store.probe()
                return

    async def catch_up(self, only: str | None = None) -> None:
        """Wait until memory has every write that any controller acknowledged before the call.

        Args:
            only: a switch, if writes to other switches do not matter.

        Raises:
            StoreError: the store does not answer, or memory cannot follow it.

        """
        if self.store.shared:
            await self.store.catch_up()
            await self._sync.caught_up(only)

    def _follow_problems(self, switch: str, of: str, spec: ClassSpec) -> list[FieldError]:
        """Return the reasons why a class cannot follow the bottleneck that it names."""
        if spec.follow is None:
            return []
        others = [
            (found.name, other)
            for found in self.switches.values()
            for other in found.desired.following
            if (found.name, other) != (switch, of)
        ]
        return follow_problems(spec.follow, len(others), self.switches)

    async def delete(
        self,
        switch: str,
        kind: str,
        name: str,
        condition: Condition = NO_CONDITION,
        origin: Origin = _ANONYMOUS,
    ) -> None:
        """Remove a resource that nothing uses.

        Raises:
            Problem: nothing was changed.

        """
        async for attempt in self.attempts():
            with attempt:
                async with self._turn(switch, kind, name, None, origin) as (found, change):
                    attempt.on(found)
                    old: Record | None = found.desired.resources[kind].get(name)
                    if old is None:
                        # No similar name is suggested, since a client may have deleted it twice.
                        raise not_found(kind, name, (), f" on switch {switch!r}")
                    condition.check(resource_name(kind, name, switch), old.revision)
                    users = in_use(kind, name, switch, found.desired)
                    if users is not None:
                        raise users
                    change.replace(old, None)
                    await change.commit()

    @contextlib.asynccontextmanager
    async def _turn(
        self, switch: str, kind: str, name: str, spec: Spec | None, origin: Origin
    ) -> AsyncIterator[tuple[ManagedSwitch, Change]]:
        """Wait for the turn at a switch (`Committer.turn`), again if it is replaced meanwhile."""
        while True:
            found = self._with(switch, kind)
            async with self.committer.turn(found, kind, name, spec, origin) as change:
                if self.holds(found):
                    yield found, change
                    return

    def holds(self, found: ManagedSwitch) -> bool:
        """Whether a switch is still the one with its name; ask after waiting for its lock."""
        return self.switches.get(found.name) is found

    # ---- statistics ----

    async def statistics(self, name: str, samples: Samples | None = None) -> dict[str, Any]:
        """Return counters and rates of a switch; a value that it does not report is null.

        Args:
            name: the name of the switch.
            samples: the previous counts of a client that reads periodically; rates are over the
                time since. None: the counts of the last call without `samples`.

        """
        found = self.switch(name)
        if samples is None:
            return await statistics(found, found.samples)
        return await statistics(found, samples, SHARED_S)

    def states(self) -> Mapping[str, str]:
        """Return the state of each switch, by name."""
        return {name: managed.state for name, managed in self.switches.items()}


def make_record(
    kind: str, name: str, spec: Spec, old: Record | None, allocation: Allocation
) -> Record:
    """Return the record of a created or replaced resource; it keeps an index or takes a new one."""
    if isinstance(spec, ClassSpec):
        index = old.index if isinstance(old, ClassRecord) else allocation.take()
        return ClassRecord(name, index, spec)
    if isinstance(spec, FlowSpec):
        private = old.private_index if isinstance(old, FlowRecord) else None
        numbered = spec.meter is not None and allocation.numbers_meters
        if spec.rate is None and not numbered:
            private = None
        elif private is None:
            private = allocation.take()
        return FlowRecord(name, private, spec)
    if isinstance(spec, MeterSpec):
        return MeterRecord(name, spec)
    return PortRecord(name, spec)
