"""Traces of packets: dry runs, and packets as they come in."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from pacer_controller import packet_filter
from pacer_controller.problems import FieldError, Problem, invalid
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.service.statistics import unreadable
from pacer_controller.southbound import (
    FilterInstruction,
    SwitchUnreadableError,
    Tracing,
    TracingRefusedError,
)

COMPILE_S = 5.0
"""Longest time until a filter is compiled, in seconds."""

_COMPILERS = ThreadPoolExecutor(2, "filter")
"""Threads of their own, since looking up the names of hosts in a filter can take seconds."""


async def dry_run(service: Service, name: str, port: int, frame: bytes) -> dict[str, Any]:
    """Return the trace that a frame would have if it came in at a port of a switch now."""
    found = service.switch(name)
    tracing = _tracing(found)
    try:
        trace = await tracing.dry_run(port, frame)
    except (SwitchUnreadableError, TracingRefusedError) as error:
        raise _problem(found, error) from None
    return {"switch": name, "trace": trace}


async def compiled(text: str | None) -> list[FilterInstruction]:
    """Compile a filter in the language of tcpdump; None: one that accepts all packets."""
    if text is None:
        return []
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(COMPILE_S):
            return await loop.run_in_executor(_COMPILERS, packet_filter.compile_filter, text)
    except TimeoutError:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "filter-takes-too-long",
            "The filter is not compiled in time",
            f"after {COMPILE_S:.0f} s; names of hosts are looked up, give addresses instead",
        ) from None
    except packet_filter.FilterError as error:
        wrong = FieldError("match", str(error), 'a filter of tcpdump, such as "tcp dst port 80"')
        raise invalid("request", [wrong]) from None
    except packet_filter.NoLibpcapError as error:
        raise Problem(
            HTTPStatus.NOT_IMPLEMENTED, "no-libpcap", "Filters cannot be compiled", str(error)
        ) from None


async def watch(
    service: Service,
    name: str,
    port: int | None,
    instructions: list[FilterInstruction],
    count: int,
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield traces of packets that come in, each with the number of those skipped before it."""
    found = service.switch(name)
    tracing = _tracing(found)
    try:
        async for trace, skipped in tracing.watch(port, instructions, count):
            yield {"switch": name, "trace": trace, "skipped": skipped}
    except (SwitchUnreadableError, TracingRefusedError) as error:
        raise _problem(found, error) from None


def _tracing(found: ManagedSwitch) -> Tracing:
    tracing = found.driver.tracing
    if tracing is None:
        raise Problem(
            HTTPStatus.CONFLICT,
            "switch-does-not-trace",
            "The switch does not trace packets now",
            f"switch {found.name!r} is {found.driver.state.value}; pacing_switch traces packets "
            "while it is connected, Open vSwitch has `ovs-appctl ofproto/trace`",
        )
    return tracing


def _problem(found: ManagedSwitch, error: SwitchUnreadableError | TracingRefusedError) -> Problem:
    if isinstance(error, SwitchUnreadableError):
        return unreadable(found.name, error)
    return Problem(
        HTTPStatus.CONFLICT,
        "trace-refused",
        "The switch refused to trace",
        f"switch {found.name!r}: {error}",
    )
