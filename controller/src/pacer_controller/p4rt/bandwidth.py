"""gtrcnet's measurements at a port: bins of 500 us, windows of 100 ms, virtual queue."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from pacer_controller.config import MEASURED_PORTS
from pacer_controller.southbound import VirtualQueue

BIN_NS = 500_000
BINS = 65536
WINDOW_NS = 100_000_000
WINDOWS = 4096

ReadRegisters = Callable[[str, Iterable[int]], Awaitable[dict[int, int] | None]]


async def read(
    registers: ReadRegisters, port: int, from_ns: int, to_ns: int | None
) -> dict[str, Any] | None:
    """Return columns by time, empty bins left out; None when registers cannot be read.

    Args:
        registers: reads cells of a register array by index.
        port: port the packets came in by.
        from_ns: switch's clock, from.
        to_ns: switch's clock, until; None: no end.

    """
    windows = await windows_of_slot(
        registers, port, from_ns, to_ns, {"vb_max_bytes": "GtrcnetIngress.window_vb_max_bytes"}
    )
    if windows is None:
        return None
    used = [start_ns // WINDOW_NS for start_ns in windows["start_ns"]]
    bins = _bins(used, from_ns, to_ns)
    bin_cells = [port * BINS + number % BINS for number in bins]
    of_bins = await read_cells(
        registers,
        {
            "GtrcnetIngress.bin_id": bin_cells,
            "GtrcnetIngress.bin_bytes": bin_cells,
            "GtrcnetIngress.vb_max_bytes": [port],
        },
    )
    if of_bins is None:
        return None
    bin_ids, bin_bytes, virtual_max = of_bins
    filled = [
        (number, bin_bytes[cell])
        for number, cell in zip(bins, bin_cells, strict=True)
        if bin_ids[cell] == number and bin_bytes[cell]
    ]
    return {
        "bin_ns": BIN_NS,
        "window_ns": WINDOW_NS,
        "vb_max_bytes": virtual_max[port],
        "bins": {
            "start_ns": [number * BIN_NS for number, _ in filled],
            "bytes": [count for _, count in filled],
        },
        "windows": windows,
    }


async def windows_of_slot(
    registers: ReadRegisters, slot: int, from_ns: int, to_ns: int | None, columns: Mapping[str, str]
) -> dict[str, list[int]] | None:
    """Return `start_ns`, `bytes` and more columns of a slot's windows, empty ones left out.

    None when registers cannot be read.

    Args:
        registers: reads cells of a register array by index.
        slot: a measured port's number, or the slot of a measured flow.
        from_ns: switch's clock, from.
        to_ns: switch's clock, until; None: no end.
        columns: register array of each further column.

    """
    first = slot * WINDOWS
    places: Sequence[int] = range(WINDOWS)
    if to_ns is not None and to_ns - from_ns < (WINDOWS - 1) * WINDOW_NS:
        # Read only the part of the ring that can hold these windows, since each cell takes time.
        wanted = range(from_ns // WINDOW_NS, to_ns // WINDOW_NS + 1)
        places = sorted({window % WINDOWS for window in wanted})
    cells = [first + place for place in places]
    known = await read_cells(registers, {"GtrcnetIngress.window_id": cells})
    if known is None:
        return None
    (ids,) = known
    # An unused cell reads id 0, as window 0 would; the byte count tells them apart.
    windows = {
        window: first + place
        for place in places
        if (window := ids[first + place]) % WINDOWS == place
        and (window + 1) * WINDOW_NS > from_ns
        and (to_ns is None or window * WINDOW_NS < to_ns)
    }
    cells = list(windows.values())
    arrays = {"bytes": "GtrcnetIngress.window_bytes", **columns}
    read_back = await read_cells(registers, dict.fromkeys(arrays.values(), cells))
    if read_back is None:
        return None
    by_column = dict(zip(arrays, read_back, strict=True))
    used = sorted(window for window, cell in windows.items() if by_column["bytes"].get(cell))
    return {
        "start_ns": [window * WINDOW_NS for window in used],
        **{
            column: [values[windows[window]] for window in used]
            for column, values in by_column.items()
        },
    }


async def queue(registers: ReadRegisters, slot: int) -> VirtualQueue | None:
    """Return the queue of a slot's virtual bottleneck now, and its last whole window.

    None when registers cannot be read, and while no packet has come.
    """
    now = await read_cells(
        registers, {"GtrcnetIngress.vb_last_ns": [slot], "GtrcnetIngress.vb_now_q24": [slot]}
    )
    if now is None or not now[0][slot]:
        return None
    at_ns, queue_q24 = now[0][slot], now[1][slot]
    window = at_ns // WINDOW_NS - 1
    cell = slot * WINDOWS + window % WINDOWS
    names = ("window_id", "window_bytes", "window_vb_max_bytes")
    found = await read_cells(registers, {f"GtrcnetIngress.{name}": [cell] for name in names})
    if found is None:
        return None
    ids, counts, longest = (values[cell] for values in found)
    current = ids == window
    return VirtualQueue(
        at_ns=at_ns,
        queue_bytes=queue_q24 >> 24,
        window_start_ns=window * WINDOW_NS,
        window_bytes=counts if current else 0,
        window_max_bytes=longest if current else 0,
    )


async def read_cells(
    registers: ReadRegisters, wanted: Mapping[str, Sequence[int]]
) -> list[dict[int, int]] | None:
    """Return all cells asked for, by array; None when one cannot be read.

    The switch may go away between any two reads.
    """
    found = []
    for name, indices in wanted.items():
        cells = await registers(name, indices)
        if cells is None or any(index not in cells for index in indices):
            return None
        found.append(cells)
    return found


def _bins(windows: list[int], from_ns: int, to_ns: int | None) -> list[int]:
    """Return the numbers of the bins that may exist for the existing windows."""
    if not windows:
        return []
    # The ring of bins is shorter than the ring of windows: older bins are overwritten.
    per_window = WINDOW_NS // BIN_NS
    oldest = (windows[-1] + 1) * per_window - BINS
    return [
        number
        for window in windows
        for number in range(window * per_window, (window + 1) * per_window)
        if number >= oldest
        and (number + 1) * BIN_NS > from_ns
        and (to_ns is None or number * BIN_NS < to_ns)
    ]


async def bottlenecks(
    registers: ReadRegisters, ports: Iterable[int], now_ns: int
) -> list[dict[str, Any]] | None:
    """Return, for each measured port, the bytes of the last whole window and the longest queue.

    None when registers cannot be read.
    """
    window = now_ns // WINDOW_NS - 1
    result = []
    for port in ports:
        if port >= MEASURED_PORTS or window < 0:
            continue
        cell = port * WINDOWS + window % WINDOWS
        found = await read_cells(
            registers,
            {
                "GtrcnetIngress.window_id": [cell],
                "GtrcnetIngress.window_bytes": [cell],
                "GtrcnetIngress.vb_max_bytes": [port],
                "GtrcnetIngress.window_vb_max_bytes": [cell],
            },
        )
        if found is None:
            return None
        ids, count, longest, queue = found
        current = ids[cell] == window
        result.append(
            {
                "port": port,
                "achieved_bps": (count[cell] if current else 0) * 8 * 10**9 // WINDOW_NS,
                "vb_bytes": queue[cell] if current else 0,
                "vb_max_bytes": longest[port],
            }
        )
    return result
