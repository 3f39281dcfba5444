"""gtrcnet's measurements of burstiness: a slot's windows, read from its registers.

The program computes dynamic burstiness in two stages (p4src/include/dynamic_burstiness.p4); the
second stage runs only while packets arrive. This module computes the rest from the kept packets.
"""

from dataclasses import dataclass

from pacer_controller.burst.measure import DynamicQueue, Measured, Window
from pacer_controller.config import SLOTS
from pacer_controller.p4rt.bandwidth import WINDOW_NS, ReadRegisters, read_cells, windows_of_slot

DYNAMIC_UNKNOWN = (1 << 64) - 1
"""Value for the longest queue of a window if not all of its packets were kept."""

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
    """The progress of a slot's two stages. Between two equal readings no packet arrived."""

    kept: int
    overflow: int
    taken: int
    now: int
    taken_ns: int
    window: int
    last_ns: int


async def read(
    registers: ReadRegisters, kept_cells: int, slot: int, from_ns: int, to_ns: int | None
) -> Measured | None:
    """Return the windows of a slot; None when registers cannot be read.

    Of the windows that the second stage has left, dynamic burstiness is not known if packets arrive
    during the reading.

    Args:
        registers: reads cells of a register array by index.
        kept_cells: cells of the program's array of kept packets; each slot has a ring of its part.
        slot: a measured port's number, or the slot of a measured flow.
        from_ns: switch's clock, from.
        to_ns: switch's clock, until; None: no end.

    """
    ring = _Ring(registers, slot, kept_cells // SLOTS)
    stages = await _stages(registers, slot)
    if stages is None:
        return None
    # Read before the windows are: all windows before this one are final.
    first_window = await ring.first_window(stages)
    found = await windows_of_slot(registers, slot, from_ns, to_ns, _COLUMNS)
    if first_window is None or found is None:
        return None
    left = await ring.left(stages)
    numbers = [start_ns // WINDOW_NS for start_ns in found["start_ns"]]
    counts = dict(zip(numbers, found["bytes"], strict=True))
    longest = dict(zip(numbers, found["dynamic_max"], strict=True))
    if left is None:
        longest |= {number: DYNAMIC_UNKNOWN for number in numbers if number >= first_window}
    else:
        queue = DynamicQueue(WINDOW_NS, stages.now, stages.taken_ns, stages.window)
        for at_ns, frame_bytes in left:
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


@dataclass(frozen=True)
class _Ring:
    """A slot's ring of kept packets, which has `size` cells."""

    registers: ReadRegisters
    slot: int
    size: int

    def _places(self, first: int, end: int) -> list[int]:
        return [self.slot * self.size + number % self.size for number in range(first, end)]

    async def first_window(self, stages: _Stages) -> int | None:
        """Return the window of the first packet that the second stage has left.

        None if it cannot be read.
        """
        if stages.kept == stages.taken:
            # The packets of the last window are kept until the next one begins, so there was none.
            return 0
        (place,) = self._places(stages.taken, stages.taken + 1)
        found = await read_cells(self.registers, {"GtrcnetIngress.kept_ns": [place]})
        after = await _stages(self.registers, self.slot)
        if found is None or after is None:
            return None
        if after.kept - stages.taken > self.size:
            # The cell may hold a later packet, and the last processed packet's window may not be
            # complete.
            return stages.window
        return found[0][place] // WINDOW_NS

    async def left(self, stages: _Stages) -> list[tuple[int, int]] | None:
        """Return time and length of the packets that the second stage has left, as of `stages`.

        None if packets arrived since, or if they cannot be read.
        """
        # While packets arrive, the ring need not be read: it would have changed.
        if await _stages(self.registers, self.slot) != stages:
            return None
        places = self._places(stages.taken, stages.kept)
        wanted = {f"GtrcnetIngress.{name}": places for name in ("kept_ns", "kept_bytes")}
        found = await read_cells(self.registers, wanted)
        if found is None or await _stages(self.registers, self.slot) != stages:
            return None
        times, lengths = found
        return [(times[place], lengths[place]) for place in places]
