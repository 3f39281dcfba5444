"""The long fat network for `mn`: two hosts, two edge switches, and a measuring bottleneck.

h1 --- s1 --- wan --- s2 --- h2

s1   pacer.p4. Its port to the wan is the sender's 1 Gbit/s Ethernet line, with a FIFO that holds
     any window, so packets are lost at the bottleneck only.
wan  gtrcnet.p4. Each way has the path's rate, counted as in GtrcNET-1 (layer 2 with FCS), the
     drop-tail FIFO, and half the RTT.
s2   pacer.p4, without classes.
"""

import difflib
from typing import Any, ClassVar

from mininet.topo import Topo

from pacer_mininet.hosts import LfnHost
from pacer_mininet.lab import departures_here
from pacer_mininet.units import format_rate, format_size, parse_duration, parse_rate, parse_size

EDGE_RATE = "1gbit"
EDGE_FIFO = "32MB"
"""More than the largest TCP window of the experiments, so that a sender's line never drops."""


class LfnTopo(Topo):  # type: ignore[misc] # mininet has no types
    """Topology `lfn`: `rate` and `fifo` of the bottleneck, `rtt` of the path, `edge_rate` of s1.

    For `mn --topo lfn,rate=500mbit,rtt=200ms,fifo=64KB --switch pacing`.
    """

    parameters = ("rate", "rtt", "fifo", "edge_rate")
    host_class: ClassVar[type[LfnHost]] = LfnHost

    def build(
        self,
        rate: object = "500mbit",
        rtt: object = "200ms",
        fifo: object = "64KB",
        edge_rate: object = EDGE_RATE,
        **unknown: Any,
    ) -> None:
        """Build the topology; ValueError for a parameter out of range or an unknown one."""
        for name in unknown:
            close = difflib.get_close_matches(name, self.parameters, n=1)
            guess = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(
                f"topology lfn has no parameter {name!r}{guess}; "
                f"it has {', '.join(self.parameters)}"
            )
        rate_bps, rtt_ns, fifo_bytes = parse_rate(rate), parse_duration(rtt), parse_size(fifo)
        bottleneck = {
            "rate": format_rate(rate_bps),
            "counts": "layer2",
            "fifo": format_size(fifo_bytes),
            "delay": f"{rtt_ns // 2}ns",
            "departures": departures_here(),
        }
        line = {"rate": format_rate(parse_rate(edge_rate)), "counts": "wire", "fifo": EDGE_FIFO}
        h1, h2 = (self.addHost(name, cls=self.host_class) for name in ("h1", "h2"))
        s1 = self.addSwitch("s1", program="pacer")
        wan = self.addSwitch("wan", program="gtrcnet", bottleneck=format_rate(rate_bps), spin="0ns")
        s2 = self.addSwitch("s2", program="pacer", spin="0ns")
        self.addLink(h1, s1, port2=1)
        self.addLink(s1, wan, port1=2, port2=1, params1=line, params2=dict(bottleneck))
        self.addLink(wan, s2, port1=2, port2=2, params1=dict(bottleneck))
        self.addLink(s2, h2, port1=1)
