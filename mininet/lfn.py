"""Long fat network for Mininet.

    sudo mn --custom mininet/lfn.py --topo lfn --switch pacing --controller pacer
    sudo mn --custom mininet/lfn.py --topo lfn,rate=500mbit,rtt=200ms,fifo=64KB ...
    sudo mn --custom mininet/lfn.py --topo single,2 --switch pacing_ovs --controller pacer

`mn` executes this file without a module's `__file__`.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mininet.node import Switch

_frame = inspect.currentframe()
assert _frame is not None
_here = str(Path(_frame.f_code.co_filename).resolve().parent)
if _here not in sys.path:
    sys.path.insert(0, _here)

from pacer_mininet.nodes import (  # noqa: E402 (needs the path above)
    LfnHost,
    NodeError,
    PacerController,
    PacingSwitch,
    limit_open_files,
)
from pacer_mininet.ovs_switch import PacingOVSSwitch  # noqa: E402
from pacer_mininet.paths import MissingError  # noqa: E402
from pacer_mininet.rest import ControllerError  # noqa: E402
from pacer_mininet.topology import LfnTopo  # noqa: E402


@contextlib.contextmanager
def _plain_exit() -> Iterator[None]:
    """Take down what there is of the network and end with one line when something is wrong.

    `mn` answers any exception but this with its clean-up, which kills processes by name and
    empties /tmp.
    """
    try:
        yield
    except (MissingError, NodeError, ControllerError, ValueError, OSError) as error:
        # Hosts go with us, and so do the processes; links between switches have to be taken away.
        # Not the switches' own `stop`, which would come back here.
        stops: list[Callable[[], None]] = [
            *(partial(PacingSwitch.stop, switch) for switch in PacingSwitch.live),
            *(partial(PacingOVSSwitch.stop, switch) for switch in PacingOVSSwitch.live),
        ]
        for stop in stops:
            with contextlib.suppress(NodeError, OSError):
                stop()
        sys.exit(f"\n*** {error}")


class _Topo(LfnTopo):
    def build(self, *arguments: Any, **params: Any) -> None:
        with _plain_exit():
            super().build(*arguments, **params)


class _Host(LfnHost):
    def config(self, *arguments: Any, **params: Any) -> Any:
        with _plain_exit():
            return super().config(*arguments, **params)


class _PlainSwitch(Switch):  # type: ignore[misc] # mininet has no types
    """What both kinds of switch need for `mn`; comes before them in a class's bases."""

    def __init__(self, name: str, **params: Any) -> None:
        with _plain_exit():
            super().__init__(name, **params)

    def start(self, controllers: Sequence[Any]) -> None:
        with _plain_exit():
            super().start(controllers)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        with _plain_exit():
            super().stop(deleteIntfs)


class _Switch(_PlainSwitch, PacingSwitch):
    pass


class _OvsSwitch(_PlainSwitch, PacingOVSSwitch):
    pass


class _Controller(PacerController):
    def __init__(self, name: str, **params: Any) -> None:
        with _plain_exit():
            super().__init__(name, **params)

    def start(self) -> None:
        with _plain_exit():
            super().start()


_Topo.host_class = _Host
topos = {"lfn": _Topo}
switches = {"pacing": _Switch, "pacing_ovs": _OvsSwitch}
controllers = {"pacer": _Controller}
hosts = {"lfn": _Host}


def findController() -> type[PacerController]:  # noqa: N802 (mn's name)
    """Return what `mn` takes where no --controller is given; it looks for OpenFlow ones alone."""
    return _Controller


def validate(options: Any) -> None:
    """Check, for `mn`, that topology, switch and link go together; exit with a message if not."""
    topo, switch = (str(option).partition(",")[0] for option in (options.topo, options.switch))
    if topo == "lfn" and switch != "pacing":
        sys.exit(f"\n*** --topo lfn is made of --switch pacing, not of {switch!r}")
    link = str(options.link).partition(",")[0]
    if switch == "pacing" and link.startswith("tc"):
        sys.exit(
            f"\n*** --switch pacing does not work with --link {link}: the switch itself sets a "
            "link's rate, queue and delay. Leave --link out and use "
            "--topo lfn,rate=500mbit,rtt=200ms,fifo=64KB"
        )


limit_open_files()
