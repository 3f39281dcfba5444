"""Burstiness as gtrcnet measured it: a slot's windows, read from its registers.

The program takes dynamic burstiness in two stages (p4src/include/dynamic_burstiness.p4); the second
one runs only while packets arrive. This module takes the rest from the packets that it keeps.
"""

from dataclasses import dataclass

from pacer_controller.burst.measure import DynamicQueue, Measured, Window
from pacer_controller.p4rt.bandwidth import WINDOW_NS, ReadRegisters, read_cells, windows_of_slot

KEPT_PACKETS = 131072
"""`KEPT_PACKETS` of p4src/include/burstiness.p4: cells of a slot's ring of kept packets."""

DYNAMIC_UNKNOWN = (1 << 64) - 1
"""The longest queue of a window of which a packet was not kept."""

_COLUMNS = {
    "vb_max_bytes": "GtrcnetIngress.window_vb_max_bytes",
    "dynamic_max": "GtrcnetIngress.window_dynamic_max",
    "previous_max": "GtrcnetIngress.window_previous_max",
}

_STAGES = (
    *("kept_count", "kept_overflow", "taken_count"),
    *("dynamic_now", "dynamic_last_ns", "dynamic_window", "vb_last_ns"),
)


@dataclass(frozen=True)
class _Stages:
    """How far the two stages of a slot are. Between two equal readings no packet came."""

    kept: int
    overflow: int
    taken: int
    now: int
    taken_ns: int
    window: int
    last_ns: int


@dataclass(frozen=True)
class _Left:
    """Packets that the second stage has left.

    Attributes:
        first_window: the window of the first of them; all windows before it are final.
        packets: time and length of each; None if they changed while they were read.

    """

    first_window: int
    packets: list[tuple[int, int]] | None


async def read(
    registers: ReadRegisters, slot: int, from_ns: int, to_ns: int | None
) -> Measured | None:
    """Return the windows of a slot; None when registers cannot be read.

    Of the windows that the second stage has left, dynamic burstiness is not known if packets arrive
    during the reading.
    """
    stages = await _stages(registers, slot)
    found = await windows_of_slot(registers, slot, from_ns, to_ns, _COLUMNS)
    if stages is None or found is None:
        return None
    left = await _left(registers, slot, stages)
    if left is None:
        return None
    numbers = [start_ns // WINDOW_NS for start_ns in found["start_ns"]]
    counts = dict(zip(numbers, found["bytes"], strict=True))
    longest = dict(zip(numbers, found["dynamic_max"], strict=True))
    if left.packets is None:
        longest |= {number: DYNAMIC_UNKNOWN for number in numbers if number >= left.first_window}
    else:
        queue = DynamicQueue(WINDOW_NS, stages.now, stages.taken_ns, stages.window)
        for at_ns, frame_bytes in left.packets:
            number = at_ns // WINDOW_NS
            if number in counts:
                now = queue.take(at_ns, frame_bytes, counts[number])
                longest[number] = max(longest[number], now)
    windows = [
        Window(
            number,
            counts[number],
            static,
            None if longest[number] == DYNAMIC_UNKNOWN else longest[number] // WINDOW_NS,
            previous // WINDOW_NS,
        )
        for number, static, previous in zip(
            numbers, found["vb_max_bytes"], found["previous_max"], strict=True
        )
    ]
    return Measured(WINDOW_NS, windows, stages.last_ns if windows else None)


async def _stages(registers: ReadRegisters, slot: int) -> _Stages | None:
    cells = {f"GtrcnetIngress.{name}": [slot] for name in _STAGES}
    found = await read_cells(registers, cells)
    return None if found is None else _Stages(*(cells[slot] for cells in found))


async def _left(registers: ReadRegisters, slot: int, stages: _Stages) -> _Left | None:
    """Return what the second stage has left, as of `stages`; None if it cannot be read."""
    if stages.kept == stages.taken:
        # The packets of the last window are kept until the next one begins, so there was none yet.
        return _Left(0, None)
    places = [
        slot * KEPT_PACKETS + number % KEPT_PACKETS for number in range(stages.taken, stages.kept)
    ]
    # While packets arrive, the ring need not be read: it would have changed.
    quiet = await _stages(registers, slot) == stages
    if not quiet:
        del places[1:]
    wanted = {f"GtrcnetIngress.{name}": places for name in ("kept_ns", "kept_bytes")}
    found = await read_cells(registers, wanted)
    if found is None:
        return None
    times, lengths = found
    first_window = times[places[0]] // WINDOW_NS
    if not quiet or await _stages(registers, slot) != stages:
        return _Left(first_window, None)
    return _Left(first_window, [(times[place], lengths[place]) for place in places])
