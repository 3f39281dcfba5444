"""Dynamic burstiness of a switch that has not taken all packets that it keeps."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from pacer_controller.burst.measure import DynamicQueue, Meter
from pacer_controller.cli.burst import table
from pacer_controller.config import SLOTS
from pacer_controller.p4rt.bandwidth import WINDOW_NS, WINDOWS
from pacer_controller.p4rt.burstiness import DYNAMIC_UNKNOWN, read

SLOT = 3
KEPT_PACKETS = 8192
KEPT_CELLS = SLOTS * KEPT_PACKETS
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
        self.arriving = 0
        """Packets that come behind each reading of the stages."""
        meter = Meter(RATE_Q24, WINDOW_NS)
        for number, (at_ns, length) in enumerate(PACKETS):
            meter.add(at_ns, length)
            place = SLOT * KEPT_PACKETS + number % KEPT_PACKETS
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
        found = {index: self.cells[short].get(index, 0) for index in indices}
        if short == "vb_last_ns":
            self._arrive()
        return found

    def _arrive(self) -> None:
        for _ in range(self.arriving):
            number = self.cells["kept_count"][SLOT]
            self.cells["kept_ns"][SLOT * KEPT_PACKETS + number % KEPT_PACKETS] = 90 * WINDOW_NS
            self.cells["kept_count"][SLOT] += 1


@pytest.mark.parametrize("taken", [0, 1, 19, 20, 21, 47, 60])
def test_the_rest_is_taken_from_the_packets_that_are_kept(taken: int) -> None:
    registers = Registers(taken)
    assert asyncio.run(read(registers, KEPT_CELLS, SLOT, 0, None)) == registers.measured
    part = asyncio.run(read(registers, KEPT_CELLS, SLOT, 6 * WINDOW_NS, 9 * WINDOW_NS))
    assert part is not None
    assert part.windows == registers.measured.windows[1:3]


def test_windows_that_are_left_are_unknown_while_packets_arrive() -> None:
    registers = Registers(taken=27)
    registers.arriving = 1
    measured = asyncio.run(read(registers, KEPT_CELLS, SLOT, 0, None))
    assert measured is not None
    first, *left = registers.measured.windows
    unknown = [replace(window, dynamic_max_bytes=None) for window in left]
    assert measured.windows == [first, *unknown]
    summary = measured.summary()
    assert summary["dynamic_unknown_windows"] == 3
    assert summary["dynamic_vb_max_bytes"] == first.dynamic_max_bytes


@pytest.mark.parametrize("taken", [27, 40])
def test_no_window_is_final_whose_packets_were_overwritten_meanwhile(taken: int) -> None:
    """Of the 40th packet the last one taken says where the second stage is: the window before."""
    registers = Registers(taken)
    registers.arriving = KEPT_PACKETS
    measured = asyncio.run(read(registers, KEPT_CELLS, SLOT, 0, None))
    assert measured is not None
    known = [window.dynamic_max_bytes is not None for window in measured.windows]
    assert known == [True, False, False, False]


def test_a_window_of_which_a_packet_was_not_kept_is_unknown() -> None:
    registers = Registers(taken=27)
    registers.cells["window_dynamic_max"][SLOT * WINDOWS + 4] = DYNAMIC_UNKNOWN
    measured = asyncio.run(read(registers, KEPT_CELLS, SLOT, 0, None))
    assert measured is not None
    known = [window.dynamic_max_bytes is not None for window in measured.windows]
    assert known == [False, True, True, True]


def test_nothing_is_known_of_a_switch_without_registers() -> None:
    async def unreadable(_name: str, _indices: Iterable[int]) -> None:
        return None

    assert asyncio.run(read(unreadable, KEPT_CELLS, SLOT, 0, None)) is None


def test_the_table_says_that_windows_are_unknown() -> None:
    registers = Registers(taken=27)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table([("quiet", registers.measured.summary())]))
    assert "?" not in captured.get()
    registers.arriving = 1
    measured = asyncio.run(read(registers, KEPT_CELLS, SLOT, 0, None))
    assert measured is not None
    with console.capture() as captured:
        console.print(table([("busy", measured.summary())]))
    assert "?" in captured.get()
