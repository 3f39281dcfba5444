"""Burstiness as gtrcnet measured it: a slot's windows, read from its registers."""

from pacer_controller.burst.measure import Measured, Window
from pacer_controller.p4rt.bandwidth import WINDOW_NS, ReadRegisters, read_cells, windows_of_slot

_COLUMNS = {
    "vb_max_bytes": "GtrcnetIngress.window_vb_max_bytes",
    "dynamic_max": "GtrcnetIngress.window_dynamic_max",
}


async def read(
    registers: ReadRegisters, slot: int, from_ns: int, to_ns: int | None
) -> Measured | None:
    """Return the windows of a slot; None when registers cannot be read."""
    found = await windows_of_slot(registers, slot, from_ns, to_ns, _COLUMNS)
    if found is None:
        return None
    last = await read_cells(registers, {"GtrcnetIngress.vb_last_ns": [slot]})
    if last is None:
        return None
    columns = zip(
        *(found[name] for name in ("start_ns", "bytes", "vb_max_bytes", "dynamic_max")), strict=True
    )
    windows = [
        Window(start_ns // WINDOW_NS, count, longest, dynamic // WINDOW_NS)
        for start_ns, count, longest, dynamic in columns
    ]
    return Measured(WINDOW_NS, windows, last[0][slot] if windows else None)
