"""Dynamic burstiness of a switch that has not taken all packets that it keeps."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from pacer_controller.burst.measure import DynamicQueue, Meter
from pacer_controller.cli.burst import table
from pacer_controller.p4rt.bandwidth import WINDOW_NS, WINDOWS
from pacer_controller.p4rt.burstiness import DYNAMIC_UNKNOWN, KEPT_PACKETS, read

SLOT = 3
RATE_Q24 = 1 << 20
PACKETS = [
    (4 * WINDOW_NS + burst * 2 * WINDOW_NS + 12_304 * n, 1518 - n)
    for burst in range(4)
    for n in range(20)
]


class Registers:
    """Registers of a slot after PACKETS, of which the second stage has taken the first `taken`."""

    def __init__(self, taken: int) -> None:
        self.cells: dict[str, dict[int, int]] = defaultdict(dict)
        self.arriving = False
        meter = Meter(RATE_Q24, WINDOW_NS)
        for number, (at_ns, length) in enumerate(PACKETS):
            meter.add(at_ns, length)
            place = SLOT * KEPT_PACKETS + number
            self.cells["kept_ns"][place], self.cells["kept_bytes"][place] = at_ns, length
        self.measured = meter.measured()
        longest: dict[int, int] = defaultdict(int)
        counts = {window.number: window.bytes for window in self.measured.windows}
        queue = DynamicQueue(WINDOW_NS, window=0)
        for at_ns, length in PACKETS[:taken]:
            number = at_ns // WINDOW_NS
            longest[number] = max(longest[number], queue.take(at_ns, length, counts[number]))
        for window in self.measured.windows:
            cell = SLOT * WINDOWS + window.number
            self.cells["window_id"][cell] = window.number
            self.cells["window_bytes"][cell] = window.bytes
            self.cells["window_vb_max_bytes"][cell] = window.vb_max_bytes
            self.cells["window_dynamic_max"][cell] = longest[window.number]
            self.cells["window_previous_max"][cell] = window.previous_max_bytes * WINDOW_NS
        self.cells["kept_count"][SLOT], self.cells["taken_count"][SLOT] = len(PACKETS), taken
        self.cells["dynamic_now"][SLOT] = queue.queue
        self.cells["dynamic_last_ns"][SLOT] = queue.last_ns
        self.cells["dynamic_window"][SLOT] = queue.window
        self.cells["vb_last_ns"][SLOT] = PACKETS[-1][0]

    async def __call__(self, name: str, indices: Iterable[int]) -> dict[int, int] | None:
        """Read cells, as a switch does (`access.registers`)."""
        short = name.removeprefix("GtrcnetIngress.")
        if self.arriving and short == "kept_count":
            self.cells[short][SLOT] += 1
        return {index: self.cells[short].get(index, 0) for index in indices}


@pytest.mark.parametrize("taken", [0, 1, 19, 20, 21, 47, 60])
def test_the_rest_is_taken_from_the_packets_that_are_kept(taken: int) -> None:
    registers = Registers(taken)
    assert asyncio.run(read(registers, SLOT, 0, None)) == registers.measured
    part = asyncio.run(read(registers, SLOT, 6 * WINDOW_NS, 9 * WINDOW_NS))
    assert part is not None
    assert part.windows == registers.measured.windows[1:3]


def test_windows_that_are_left_are_unknown_while_packets_arrive() -> None:
    registers = Registers(taken=27)
    registers.arriving = True
    measured = asyncio.run(read(registers, SLOT, 0, None))
    assert measured is not None
    first, *left = registers.measured.windows
    unknown = [replace(window, dynamic_max_bytes=None) for window in left]
    assert measured.windows == [first, *unknown]
    summary = measured.summary()
    assert summary["dynamic_unknown_windows"] == 3
    assert summary["dynamic_vb_max_bytes"] == first.dynamic_max_bytes


def test_a_window_of_which_a_packet_was_not_kept_is_unknown() -> None:
    registers = Registers(taken=27)
    registers.cells["window_dynamic_max"][SLOT * WINDOWS + 4] = DYNAMIC_UNKNOWN
    measured = asyncio.run(read(registers, SLOT, 0, None))
    assert measured is not None
    known = [window.dynamic_max_bytes is not None for window in measured.windows]
    assert known == [False, True, True, True]


def test_nothing_is_known_of_a_switch_without_registers() -> None:
    async def unreadable(_name: str, _indices: Iterable[int]) -> None:
        return None

    assert asyncio.run(read(unreadable, SLOT, 0, None)) is None


def test_the_table_says_that_windows_are_unknown() -> None:
    registers = Registers(taken=27)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table([("quiet", registers.measured.summary())]))
    assert "?" not in captured.get()
    registers.arriving = True
    measured = asyncio.run(read(registers, SLOT, 0, None))
    assert measured is not None
    with console.capture() as captured:
        console.print(table([("busy", measured.summary())]))
    assert "?" in captured.get()
