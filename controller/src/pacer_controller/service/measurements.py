"""Bandwidth and burstiness, measured by switches that run gtrcnet."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, TypeVar

from pacer_controller.problems import Problem, did_you_mean
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.service.statistics import unreadable
from pacer_controller.southbound import Measuring, SwitchUnreadableError

_Read = TypeVar("_Read")


async def bandwidth(
    service: Service, name: str, port: int, from_ns: int | None, to_ns: int | None
) -> dict[str, Any]:
    """Return the bandwidth that gtrcnet measured at a port, columns by time, without empty bins."""
    found = service.switch(name)
    result = await _read(found, _measuring(found).bandwidth(port, from_ns or 0, to_ns))
    return {"switch": name, "port": port, **result}


async def burstiness(
    service: Service, name: str, of: int | str, from_ns: int | None, to_ns: int | None
) -> dict[str, Any]:
    """Return the burstiness that gtrcnet measured at a port (by number) or of a flow."""
    found = service.switch(name)
    measuring = _measuring(found)
    what: dict[str, Any] = {"port": of, "flow": None}
    if isinstance(of, str):
        what = {"port": None, "flow": of}
        if of not in measuring.measured_flows:
            guess = did_you_mean(of, measuring.measured_flows)
            raise Problem(
                HTTPStatus.NOT_FOUND,
                "unknown-flow",
                "There is no such flow",
                f"switch {name!r} measures no flow {of!r}{guess}",
            )
    rate_bps = measuring.bottleneck_bps(of)
    measured = await _read(found, measuring.burstiness(of, from_ns or 0, to_ns))
    return {"switch": name, **what, "bottleneck_bps": rate_bps, **measured.as_dict()}


async def _read(found: ManagedSwitch, reading: Awaitable[_Read | None]) -> _Read:
    """Return the values read from registers, or raise the error as a problem."""
    try:
        result = await reading
    except SwitchUnreadableError as error:
        if not error.gone:
            raise unreadable(found.name, error) from None
        result = None
    if result is None:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "switch-unreadable",
            "The switch's registers cannot be read now",
            f"switch {found.name!r} is {found.driver.state.value}, "
            "or its target does not read registers",
        )
    return result


def _measuring(found: ManagedSwitch) -> Measuring:
    """Return the measurements of a switch, or raise the 409 if it does not measure."""
    measuring = found.driver.measuring
    if measuring is None:
        program = found.driver.describe().get("program")
        raise Problem(
            HTTPStatus.CONFLICT,
            "program-does-not-measure",
            "The switch's program does not measure bandwidth",
            f"switch {found.name!r} runs {program}; only gtrcnet measures",
        )
    return measuring
