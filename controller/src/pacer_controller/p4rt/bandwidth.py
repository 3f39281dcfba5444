"""What gtrcnet measured at a port: 500 us bins, 100 ms windows, the virtual bottleneck's queue."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

BIN_NS = 500_000
BINS = 65536
WINDOW_NS = 100_000_000
WINDOWS = 4096
MEASURED_PORTS = 4
"""gtrcnet's rings; ports 0 to 3 are measured."""

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
    first = port * WINDOWS
    ids = await registers("GtrcnetIngress.window_id", range(first, first + WINDOWS))
    if ids is None:
        return None
    # An unused cell reads id 0, as window 0 would; the byte count tells them apart.
    windows = {
        window: first + cell
        for cell in range(WINDOWS)
        if (window := ids[first + cell]) % WINDOWS == cell
        and (window + 1) * WINDOW_NS > from_ns
        and (to_ns is None or window * WINDOW_NS < to_ns)
    }
    cells = list(windows.values())
    window_bytes = await registers("GtrcnetIngress.window_bytes", cells) or {}
    window_max = await registers("GtrcnetIngress.window_vb_max_bytes", cells) or {}
    used = sorted(window for window, cell in windows.items() if window_bytes.get(cell))
    bins = _bins(used, from_ns, to_ns)
    bin_cells = [port * BINS + number % BINS for number in bins]
    bin_ids = await registers("GtrcnetIngress.bin_id", bin_cells) or {}
    bin_bytes = await registers("GtrcnetIngress.bin_bytes", bin_cells) or {}
    filled = [
        (number, bin_bytes[cell])
        for number, cell in zip(bins, bin_cells, strict=True)
        if bin_ids[cell] == number and bin_bytes[cell]
    ]
    virtual_max = await registers("GtrcnetIngress.vb_max_bytes", [port]) or {}
    return {
        "bin_ns": BIN_NS,
        "window_ns": WINDOW_NS,
        "vb_max_bytes": virtual_max.get(port, 0),
        "bins": {
            "start_ns": [number * BIN_NS for number, _ in filled],
            "bytes": [count for _, count in filled],
        },
        "windows": {
            "start_ns": [window * WINDOW_NS for window in used],
            "bytes": [window_bytes[windows[window]] for window in used],
            "vb_max_bytes": [window_max[windows[window]] for window in used],
        },
    }


def _bins(windows: list[int], from_ns: int, to_ns: int | None) -> list[int]:
    """Return the numbers of the bins that may be there for the windows that are."""
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
        ids = await registers("GtrcnetIngress.window_id", [cell])
        if ids is None:
            return None
        current = ids[cell] == window
        count = await registers("GtrcnetIngress.window_bytes", [cell]) or {}
        longest = await registers("GtrcnetIngress.vb_max_bytes", [port]) or {}
        queue = await registers("GtrcnetIngress.window_vb_max_bytes", [cell]) or {}
        result.append(
            {
                "port": port,
                "achieved_bps": (count.get(cell, 0) if current else 0) * 8 * 10**9 // WINDOW_NS,
                "vb_bytes": queue.get(cell, 0) if current else 0,
                "vb_max_bytes": longest.get(port, 0),
            }
        )
    return result
