"""Switches, controller, hosts and a long fat network for Mininet's `mn`.

    sudo mn --custom mininet/lfn.py --topo lfn --switch pacing --controller pacer
    sudo mn --custom mininet/lfn.py --topo lfn,rate=500mbit,rtt=200ms,fifo=64KB ...
    sudo mn --custom mininet/lfn.py --topo single,2 --switch pacing_ovs --controller pacer
    sudo mn --custom mininet/lfn.py --topo single,2 --switch bmv2 --controller pacer

The Debian package has this file as /usr/share/p4-pspacer/lfn.py. `mn` executes it without a
module's `__file__`.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_frame = inspect.currentframe()
assert _frame is not None
_here = Path(_frame.f_code.co_filename).resolve().parent
_checkout = _here.parent / "python"
for _folder in (_here, _checkout) if (_checkout / "pacing_switch").is_dir() else (_here,):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

from pacer_mininet.bmv2_switch import BMv2PacerSwitch  # noqa: E402 (needs the path above)
from pacer_mininet.controller import PacerController  # noqa: E402
from pacer_mininet.hosts import LfnHost  # noqa: E402
from pacer_mininet.net import limit_open_files  # noqa: E402
from pacer_mininet.ovs_switch import PacingOVSSwitch  # noqa: E402
from pacer_mininet.pacing_switch import PacingSwitch  # noqa: E402
from pacer_mininet.paths import MissingError  # noqa: E402
from pacer_mininet.processes import NodeError  # noqa: E402
from pacer_mininet.rest import ControllerError  # noqa: E402
from pacer_mininet.switches import NetworkSwitch  # noqa: E402
from pacer_mininet.topology import LfnTopo  # noqa: E402


def _plain_exit(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that ends the program with one line when something is wrong.

    `mn` answers any other exception with its clean-up, which kills processes by name and empties
    /tmp.
    """

    @functools.wraps(method)
    def called(*arguments: Any, **params: Any) -> Any:
        try:
            return method(*arguments, **params)
        except (MissingError, NodeError, ControllerError, ValueError, OSError) as error:
            # The hosts' processes end with this one. Links between switches must be deleted.
            for switch in list(NetworkSwitch.live):
                with contextlib.suppress(NodeError, OSError, SystemExit):
                    switch.stop()
            sys.exit(f"\n*** {error}")

    return called


def _for_mn(node: type[Any], *methods: str) -> type[Any]:
    """Return a class for `mn`, some of whose methods end the program with one line."""
    return type(
        node.__name__, (node,), {name: _plain_exit(getattr(node, name)) for name in methods}
    )


_Topo = _for_mn(LfnTopo, "build")
_Topo.host_class = _for_mn(LfnHost, "config")
_Controller = _for_mn(PacerController, "__init__", "start")
# The dashboard of an interactive net shows the minute before it is opened.
_Controller.service_options = ()
topos = {"lfn": _Topo}
switches = {
    "pacing": _for_mn(PacingSwitch, "__init__", "start", "stop"),
    "bmv2": _for_mn(BMv2PacerSwitch, "__init__", "start", "stop"),
    "pacing_ovs": _for_mn(PacingOVSSwitch, "__init__", "start", "stop"),
}
controllers = {"pacer": _Controller}
hosts = {"lfn": _Topo.host_class}


def findController() -> type[PacerController]:  # noqa: N802 (mn's name)
    """Return the controller for `mn` without --controller; its own default is an OpenFlow one."""
    return _Controller


def validate(options: Any) -> None:
    """Check, for `mn`, that topology, switch and link go together; exit with a message if not."""
    topo, switch, link = (
        str(option).partition(",")[0] for option in (options.topo, options.switch, options.link)
    )
    if topo == "lfn" and switch != "pacing":
        sys.exit(f"\n*** --topo lfn needs --switch pacing, not {switch!r}")
    if switch == "pacing" and link.startswith("tc"):
        sys.exit(
            f"\n*** --switch pacing does not work with --link {link}: the switch itself sets a "
            "link's rate, queue and delay. Leave --link out and use "
            "--topo lfn,rate=500mbit,rtt=200ms,fifo=64KB"
        )


limit_open_files()
