"""Checks of resources against their switch and against each other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

from pacer_controller import entries, rates
from pacer_controller.egress_queues import EgressQueuesSpec
from pacer_controller.following import CLASSES_MOST, FollowSpec
from pacer_controller.problems import FieldError, FieldErrors, Problem, did_you_mean
from pacer_controller.records import Desired, Record
from pacer_controller.rows import owner_of
from pacer_controller.schemas import (
    GAPS_WITHOUT_RATE,
    PAUSE_FRAMES,
    ClassSpec,
    FlowSpec,
    MeterSpec,
    PortSpec,
)
from pacer_controller.service.managed import ManagedSwitch

Spec = ClassSpec | FlowSpec | MeterSpec | PortSpec


def resource_name(kind: str, name: str, switch: str) -> str:
    """Return a resource's name in messages."""
    return f"{owner_of(kind, name)} on switch {switch!r}"


class Checker:
    """Checks resources against a switch and against each other.

    Args:
        found: the switch.
        classes: the names of the classes after the change.
        meters: the names of the meters after the change.
        ports: the requested settings of ports after the change, by number in decimal.

    """

    def __init__(
        self,
        found: ManagedSwitch,
        classes: Iterable[str],
        meters: Iterable[str],
        ports: Mapping[str, PortSpec],
    ) -> None:
        self._found = found
        self._capabilities = found.driver.capabilities
        self._classes = classes
        self._meters = meters
        self._ports = {info.port for info in found.driver.ports}
        lines = {info.port: info.line_rate_bps for info in found.driver.ports}
        for name, spec in ports.items():
            if spec.line_rate is not None:
                lines[int(name)] = spec.line_rate_bps
        self._lines = {port: bps for port, bps in lines.items() if bps}

    @classmethod
    def of(cls, found: ManagedSwitch, name: str = "", spec: Spec | None = None) -> "Checker":
        """Return a checker against the desired state, with the new settings of a port if given."""
        desired = found.desired
        ports = {port: record.spec for port, record in desired.ports.items()}
        if isinstance(spec, PortSpec):
            ports[name] = spec
        return cls(found, desired.classes, desired.meters, ports)

    def problems(self, name: str, spec: Spec) -> list[FieldError]:
        """Return all errors in a resource."""
        if isinstance(spec, ClassSpec):
            return spec.problems() + self._class_problems(spec)
        if isinstance(spec, FlowSpec):
            return spec.problems() or self._flow_problems(spec)
        if isinstance(spec, PortSpec):
            return spec.problems() or self._port_problems(int(name), spec)
        return spec.problems() + self._meter_problems(spec)

    def _meter_problems(self, spec: MeterSpec) -> list[FieldError]:
        if self._capabilities.meters_mark or (spec.drop_red and not spec.marks):
            return []
        name = "drop_red" if not spec.drop_red else "yellow_dscp"
        message = "the switch's meters can only drop"
        return [FieldError(name, message, "drop_red true, and no DSCP to mark with")]

    def _class_problems(self, spec: ClassSpec) -> list[FieldError]:
        errors = FieldErrors(self._rate_problems(spec.rate, spec.port))
        if spec.mode not in self._capabilities.modes:
            message = f"the switch has no mode {spec.mode!r}"
            errors.add("mode", message, one_of(self._capabilities.modes))
        if spec.window_margin_bytes is not None and not self._capabilities.clamps_windows:
            message = "the switch cannot lower receive windows"
            errors.add("window_margin_bytes", message, "no window_margin_bytes")
        if spec.slots is not None and not self._capabilities.slots:
            errors.add("slots", "the switch has no slots", "no slots, slot_ns and slot")
        if spec.quantum_bytes is not None and not self._capabilities.slots:
            errors.add("quantum_bytes", "the switch has no quanta", "no quantum_bytes")
        if spec.ecn_threshold_bytes is not None and not self._capabilities.ecn:
            errors.add(
                "ecn_threshold_bytes",
                "the switch cannot mark packets by queue length",
                "no ecn_threshold_bytes",
            )
        return errors

    def _rate_problems(self, rate_bps: int | None, port: int | None) -> list[FieldError]:
        """Check a rate against the line rate of its port, or of the fastest rated port."""
        if port is not None and self._ports and port not in self._ports:
            return [FieldError("port", f"the switch has no port {port}", one_of(self._ports))]
        lines = {p: bps for p, bps in self._lines.items() if port in (None, p)}
        if rate_bps is None or not lines:
            return []
        fastest = max(sorted(lines), key=lambda number: lines[number])
        if rate_bps <= lines[fastest]:
            return []
        line = rates.format_rate(lines[fastest])
        shown = rates.format_rate(rate_bps)
        return [
            FieldError(
                "rate",
                f"{shown} is above the line rate of port {fastest}, {line}",
                f"a rate of at most {line}",
            )
        ]

    def _flow_problems(self, spec: FlowSpec) -> list[FieldError]:
        errors = FieldErrors()
        if spec.class_name is not None and spec.class_name not in self._classes:
            errors.append(_missing("class", "class", spec.class_name, self._classes))
        if spec.meter_name is not None and spec.meter_name not in self._meters:
            errors.append(_missing("meter", "meter", spec.meter_name, self._meters))
        errors += self._rate_problems(spec.rate, None)
        if spec.set_dscp is not None and not self._capabilities.sets_dscp:
            message = "the switch cannot set the DSCP of all packets of a flow"
            errors.add("set_dscp", message, "no set_dscp")
        most = self._capabilities.max_priority
        if most is not None and spec.priority > most:
            message = f"{spec.priority} is above the switch's highest"
            errors.add("priority", message, f"1 to {most}")
        if isinstance(spec.meter, MeterSpec):
            errors.add_below("meter.", self._meter_problems(spec.meter))
        port = spec.match.ingress_port
        if port is not None and self._ports and port not in self._ports:
            message = f"the switch has no port {port}"
            errors.add("match.ingress_port", message, one_of(self._ports))
        needed = entries.entry_count(spec.match)
        if needed > entries.MAX_FLOW_ENTRIES:
            errors.add(
                "match.dst_port",
                f"the ranges of ports need {needed} entries",
                f"ranges that need at most {entries.MAX_FLOW_ENTRIES}; those that begin and "
                "end at multiples of powers of two need the fewest",
            )
        elif needed > 1 and spec.meter is not None and self._capabilities.meter_per_entry:
            errors.add(
                "meter",
                f"the ranges of ports need {needed} entries, and each would be metered alone",
                "one port, or a range that is one entry, such as 5000-5007",
            )
        return errors

    def _port_problems(self, port: int, spec: PortSpec) -> list[FieldError]:
        can = self._capabilities
        errors = FieldErrors()
        errors += [
            FieldError(name, "the switch cannot change it", one_of(can.line_settings))
            for name in ("line_rate", "counts", "fifo_bytes", "delay_ns")
            if getattr(spec, name) is not None and name not in can.line_settings
        ]
        if spec.gap_mode is not None and spec.gap_mode not in can.gap_modes:
            message = f"the switch cannot do {spec.gap_mode!r}"
            errors.add("gap_mode", message, one_of(can.gap_modes))
        errors += self._queue_problems(spec)
        if spec.line_rate is None:
            # With a line rate in the request, the request alone was checked.
            errors += spec.queue_problems(self._lines.get(port))
        known = next((info for info in self._found.driver.ports if info.port == port), None)
        if known is not None and port not in self._lines:
            gap_mode = spec.gap_mode or known.gap_mode
            if gap_mode == PAUSE_FRAMES and PAUSE_FRAMES in can.gap_modes:
                errors.append(GAPS_WITHOUT_RATE)
        if self._ports and port not in self._ports:
            errors.add("port", f"the switch has no port {port}", one_of(self._ports))
        return errors

    def _queue_problems(self, spec: PortSpec) -> FieldErrors:
        """Check egress queues against those that the switch's ports can have."""
        errors = FieldErrors()
        features = self._capabilities.egress_queues
        if isinstance(spec.egress_queues, EgressQueuesSpec):
            if features is None:
                message = (
                    "the switch's ports have no egress queues; those of a pacing_switch and of "
                    "Open vSwitch with the pacer have them"
                )
                errors.add("egress_queues", message, "no egress_queues")
            else:
                errors.add_below("egress_queues.", spec.egress_queues.unsupported(features))
        return errors

    def unfit(self, desired: Desired) -> dict[str, str]:
        """Return the reason for each accepted resource that does not fit, by owner of its entries.

        A request that came while the switch was away could not be checked against its ports, and
        the switch may have been replaced by another kind.
        """
        found: dict[str, str] = {}
        for owner, rate_bps, port in _rated(desired):
            errors = self._rate_problems(rate_bps, port)
            if errors:
                found[owner] = _told(errors[0])
        for name, record in desired.ports.items():
            queue_errors = self._queue_problems(record.spec)
            if queue_errors:
                found[owner_of("port", name)] = _told(queue_errors[0])
        return found

    def too_fast_for(self, port: int, desired: Desired) -> list[FieldError]:
        """Return an error for each accepted resource that exceeds a port's new line rate.

        A class that names no port, and a flow's rate, are checked against the fastest port, which
        this one may have been. A resource that did not fit before is not a reason to refuse.
        """
        found = FieldErrors()
        before = Checker.of(self._found).unfit(desired)
        for owner, rate_bps, leaves in _rated(desired):
            if owner in before or not self._rate_problems(rate_bps, leaves):
                continue
            shown = rates.format_rate(rate_bps or 0)
            where = f"leaves by port {port}" if leaves == port else "leaves by any port"
            message = f"{owner} {where} at {shown}"
            expected = "a line rate at least as high, or a lower rate there first"
            found.add("line_rate", message, expected)
        return found


def _rated(desired: Desired) -> list[tuple[str, int | None, int | None]]:
    """Return the owner of the entries, the rate and the port of each resource with a rate."""
    asked: list[tuple[str, int | None, int | None]] = [
        (owner_of("class", name), record.spec.rate, record.spec.port)
        for name, record in desired.classes.items()
    ]
    asked += [
        (owner_of("flow", name), record.spec.rate, None)
        for name, record in desired.flows.items()
        if record.spec.rate is not None
    ]
    return asked


def _told(error: FieldError) -> str:
    return f"{error.message}; want {error.expected}"


_Name = TypeVar("_Name", int, str)


def one_of(values: Iterable[_Name]) -> str:
    """Return a list of the first few valid values."""
    known = sorted(values)
    shown = ", ".join(map(str, known[:10]))
    return f"one of {shown}" + (", ..." if len(known) > 10 else "") if known else "none yet"


def _missing(field: str, kind: str, name: str, known: Iterable[str]) -> FieldError:
    guess = did_you_mean(name, known)
    expected = f"a {kind} that exists: {one_of(known)}"
    return FieldError(field, f"no {kind} {name!r} on the switch{guess}", expected)


def in_use(kind: str, name: str, switch: str, desired: Desired) -> Problem | None:
    """Return the 409 for deleting a resource that flows use."""
    if kind == "class":
        users = sorted(n for n, f in desired.flows.items() if f.spec.class_name == name)
    elif kind == "meter":
        users = sorted(n for n, f in desired.flows.items() if f.spec.meter_name == name)
    else:
        return None
    if not users:
        return None
    named = ", ".join(map(repr, users[:5]))
    more = f" and {len(users) - 5} more" if len(users) > 5 else ""
    return Problem(
        HTTPStatus.CONFLICT,
        f"{kind}-in-use",
        f"Flows use the {kind}",
        f"{resource_name(kind, name, switch)} is used by {named}{more}; "
        f"delete these flows or give them another {kind} first",
    )


def bottleneck_ports(found: ManagedSwitch) -> Collection[int]:
    """Return the ports of a switch that have a virtual bottleneck."""
    measuring = found.driver.measuring
    return measuring.bottleneck_ports if measuring is not None else ()


def follow_problems(
    spec: FollowSpec, others: int, switches: Mapping[str, ManagedSwitch]
) -> list[FieldError]:
    """Return the reasons why a class cannot follow the bottleneck that it names.

    Args:
        spec: the `follow` settings of the class.
        others: the number of other classes that follow.
        switches: the switches after the change, by name.

    """
    if others >= CLASSES_MOST:
        message = f"{others} classes follow already"
        return [FieldError("follow", message, f"at most {CLASSES_MOST} that follow")]
    ports = {name: bottleneck_ports(found) for name, found in switches.items()}
    measuring = [name for name in ports if ports[name]]
    if spec.switch in measuring:
        if spec.port in ports[spec.switch]:
            return []
        message = f"no wire of switch {spec.switch!r} has port {spec.port}"
        return [FieldError("follow.port", message, one_of(ports[spec.switch]))]
    if spec.switch in switches:
        message = f"switch {spec.switch!r} does not measure: it runs no gtrcnet with a bottleneck"
    else:
        message = f"there is no switch {spec.switch!r}{did_you_mean(spec.switch, measuring)}"
    return [FieldError("follow.switch", message, one_of(measuring))]


def pacing(found: ManagedSwitch) -> ManagedSwitch:
    """Return the switch, or raise the 409 when it has no classes and flows."""
    if not found.driver.capabilities.paces:
        program = found.driver.describe().get("program")
        raise Problem(
            HTTPStatus.CONFLICT,
            "program-does-not-pace",
            "The switch's program has no classes and flows",
            f"switch {found.name!r} runs {program}, which does not pace",
        )
    return found


class Condition:
    """If-Match and If-None-Match of a request (RFC 9110 section 13.1).

    Args:
        if_match: revisions, one of which the resource must have; empty: any; None: no condition.
        must_be_new: whether the resource must not exist.

    """

    def __init__(self, if_match: Sequence[int] | None = None, must_be_new: bool = False) -> None:
        self._if_match = if_match
        self._must_be_new = must_be_new

    def check(self, resource: str, revision: int | None) -> None:
        """Raise the 412 unless the condition holds; `revision` None: there is no resource."""
        if self._must_be_new and revision is not None:
            self._fail(f"{resource} already exists")
        if self._if_match is None:
            return
        if revision is None:
            self._fail(f"{resource} does not exist")
        if self._if_match and revision not in self._if_match:
            self._fail(f'{resource} has changed since: its ETag is "{revision}"')

    def _fail(self, detail: str) -> None:
        raise Problem(
            HTTPStatus.PRECONDITION_FAILED,
            "precondition-failed",
            "A condition of the request does not hold",
            detail,
        )


NO_CONDITION = Condition()


def revision_of(record: Record | None) -> int | None:
    """Return the number of the change that made the present version of a resource."""
    return None if record is None else record.revision
