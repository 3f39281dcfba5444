"""Long fat network for Mininet.

    sudo mn --custom mininet/lfn.py --topo lfn --switch pacing --controller pacer
    sudo mn --custom mininet/lfn.py --topo lfn,rate=500mbit,rtt=200ms,fifo=64KB ...
    lab/run python3 mininet/lfn.py paced --seconds 6

`mn` executes this file without a module's `__file__`; run as a program it makes one experiment.
"""

import contextlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_frame = inspect.currentframe()
assert _frame is not None
_here = str(Path(_frame.f_code.co_filename).resolve().parent)
if _here not in sys.path:
    sys.path.insert(0, _here)

from pacer_mininet.nodes import (  # noqa: E402 (needs the path above)
    LfnHost,
    PacerController,
    PacingSwitch,
    limit_open_files,
)
from pacer_mininet.paths import MissingError  # noqa: E402
from pacer_mininet.topology import LfnTopo  # noqa: E402


@contextlib.contextmanager
def _plain_exit() -> Iterator[None]:
    """End with one line when something is missing.

    `mn` answers any other exception with its clean-up, which kills processes by name and empties
    /tmp.
    """
    try:
        yield
    except (MissingError, ValueError) as error:
        sys.exit(f"\n*** {error}")


class _Switch(PacingSwitch):
    def __init__(self, name: str, **params: Any) -> None:
        with _plain_exit():
            super().__init__(name, **params)


class _Controller(PacerController):
    def __init__(self, name: str, **params: Any) -> None:
        with _plain_exit():
            super().__init__(name, **params)


topos = {"lfn": LfnTopo}
switches = {"pacing": _Switch}
controllers = {"pacer": _Controller}
hosts = {"lfn": LfnHost}

limit_open_files()

if __name__ == "__main__":
    from pacer_mininet.command import main

    sys.exit(main())
