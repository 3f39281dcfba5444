"""The resources, as clients write them and as they are stored.

Every field's meaning, unit, range and default stands in its description, which the OpenAPI page
shows, too. Checks that need one field are made while reading it (`fields`); checks across
fields are in each resource's `problems`; checks against other resources and the switch are in
`service`.
"""

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from pacer_controller import rates
from pacer_controller.egress_queues import EgressQueuesSetting, EgressQueuesSpec
from pacer_controller.fields import (
    ALLOWANCE_NS_MAX,
    CYCLE_NS_MAX,
    CYCLE_NS_MIN,
    DEFAULT_LIMIT_BYTES,
    DEFAULT_PRIORITY,
    ETHER_TYPE_IPV4,
    ETHER_TYPE_IPV6,
    EXACT,
    FRAME_BYTES_MAX,
    MAX_BURST_BYTES,
    MAX_PRIORITY,
    MIN_BURST_BYTES,
    NAME_PATTERN,
    NO_LINE_RATE,
    PORT_PROTOCOLS,
    AllowanceNs,
    Dscp,
    EtherType,
    GapBytes,
    HeadroomPercent,
    LimitBytes,
    LineRate,
    Name,
    PortNumber,
    Prefix,
    Protocol,
    QuantumBytes,
    Rate,
    SlotNs,
    SlotNumber,
    Slots,
    Strict,
    ThresholdNs,
    TickHz,
    TransportPort,
    WindowMarginBytes,
    examples,
)
from pacer_controller.following import FollowSpec
from pacer_controller.modes import MODES_OF_SETTING, Mode
from pacer_controller.problems import FieldError, FieldErrors


class ClassSpec(Strict):
    """A class of packets, with the spacing of its packets."""

    model_config = examples(
        {"rate": "500Mbit"},
        {"mode": "static", "rate": "62.5MB/s", "ecn_threshold_bytes": 100_000, "port": 2},
        {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 1023},
        {"mode": "timer", "rate": "500Mbit", "tick_hz": 100},
        {"rate": "125Mbit", "slots": 4, "slot_ns": 24_288, "slot": 1},
        {"mode": "pspd"},
        {"mode": "pspd", "slots": 16, "slot_ns": 24_288},
        {"mode": "dynamic", "headroom_percent": 120},
        {"mode": "slow-start", "threshold_ns": 1_000_000},
        {"mode": "clustered", "threshold_ns": 1_000_000},
        {"mode": "shared", "rate": "500Mbit", "window_margin_bytes": 100_000},
        {"rate": "500Mbit", "window_margin_bytes": 100_000},
        {
            "rate": "400Mbit",
            "follow": {
                "switch": "wan",
                "port": 1,
                "fifo_bytes": 1_048_576,
                "least_rate": "50Mbit",
                "most_rate": "500Mbit",
            },
        },
    )

    mode: Mode = Field(
        default="static",
        description="`static`: packets leave at the target rate. `unpaced`: they take what the "
        "paced classes leave. `ipg`: a fixed gap behind each packet. `timer`: packets leave at the "
        "target rate, but at ticks only. `pspd`: each TCP flow at its window / round-trip time, "
        "and nothing else. `dynamic`: the same with headroom, and at most at the path's rate. "
        "`slow-start`: as `dynamic` until the flow loses something or its packets are dense "
        "enough. `clustered`: as `pspd` until then, in clusters of a millisecond. `shared`: the "
        "active TCP flows share the target rate, and slow ones catch up.",
    )
    rate: Rate | None = Field(
        default=None,
        description="Target rate; layer-2 bytes with FCS count. Needed in modes `static`, "
        "`timer` and `shared`. In mode `ipg`, where it is needed too, the line rate that the gap's "
        "bytes are counted at; in modes `dynamic` and `slow-start` the most that a flow may have, "
        "or no limit. 8kbit to 100Gbit.",
    )
    gap_bytes: GapBytes | None = Field(
        default=None, description="Gap between packets; needed in mode `ipg`, and only there."
    )
    tick_hz: TickHz | None = None
    headroom_percent: HeadroomPercent | None = None
    threshold_ns: ThresholdNs | None = None
    quantum_bytes: QuantumBytes | None = None
    slots: Slots | None = None
    slot_ns: SlotNs | None = None
    slot: SlotNumber | None = None
    limit_bytes: LimitBytes = DEFAULT_LIMIT_BYTES
    allowance_ns: AllowanceNs = None
    window_margin_bytes: WindowMarginBytes | None = None
    ecn_threshold_bytes: LimitBytes | None = Field(
        default=None,
        description="Bytes in the class's queue above which packets that are ECN-capable are "
        "marked CE; where the switch's program can mark. At most `limit_bytes`. Not in mode "
        "`unpaced`.",
    )
    port: PortNumber | None = Field(
        default=None,
        description="Port the class leaves by, if it is only one: the rate may not be above that "
        "port's line rate. Without it, the fastest port with a line rate counts.",
    )

    follow: FollowSpec | None = Field(
        default=None,
        description="A bottleneck downstream: the controller raises and lowers `rate` so that its "
        "queue stays under its FIFO. In modes `static` and `timer`.",
    )

    @property
    def allowed_ns(self) -> int:
        """The burst allowance in ns: as given, or computed for `auto` and `exact`."""
        if isinstance(self.allowance_ns, int):
            return self.allowance_ns
        taken_bytes = rates.AUTO_ALLOWANCE_BYTES
        if self.allowance_ns == EXACT:
            taken_bytes = rates.MTU_FRAME_BYTES
        elif self.follow is not None:
            # The other half of the FIFO is for the packets of others.
            taken_bytes = self.follow.fifo_bytes // 2
        computed_ns = rates.allowance_ns(self.rate, taken_bytes, self.gap_bytes)
        return min(computed_ns, ALLOWANCE_NS_MAX)

    def problems(self) -> list[FieldError]:
        """Return errors across fields."""
        found = FieldErrors()
        if self.mode in ("static", "timer", "shared") and self.rate is None:
            found.add("rate", f"a class of mode {self.mode} needs a rate", rates.EXPECTED)
        if self.mode == "ipg" and self.rate is None:
            message = "mode ipg needs the line rate that the gap's bytes are counted at"
            found.add("rate", message, rates.EXPECTED)
        if self.mode == "ipg" and self.gap_bytes is None:
            message = "mode ipg needs the gap between packets"
            found.add("gap_bytes", message, "8 to 65535")
        not_in_mode = [name for name, modes in MODES_OF_SETTING.items() if self.mode not in modes]
        if self.window_margin_bytes is not None and self.rate is None and "rate" not in not_in_mode:
            message = "the window clamp needs the rate that windows are lowered to"
            found.add("window_margin_bytes", message, "with a rate")
        threshold = self.ecn_threshold_bytes
        if threshold is not None and threshold > self.limit_bytes:
            message = f"the queue never has more than limit_bytes, {self.limit_bytes}"
            expected = f"at most {self.limit_bytes}, or a higher limit_bytes"
            found.add("ecn_threshold_bytes", message, expected)
        if self.follow is not None:
            found += self.follow.problems(self.rate)
        if "slots" not in not_in_mode:
            found += self._slot_problems()
        if "quantum_bytes" not in not_in_mode:
            found += self._quantum_problems()
        for name in not_in_mode:
            if getattr(self, name) is not None:
                message = f"a class of mode {self.mode} has no {name}"
                found.add(name, message, f"no {name}, or another mode")
        return found

    def _quantum_problems(self) -> list[FieldError]:
        """Return errors across `quantum_bytes`, `rate` and `slots`."""
        found = FieldErrors()
        if self.quantum_bytes is None or self.rate is None:
            return found
        if self.slots is not None:
            message = "packets leave once in a cycle of slots, or in quanta"
            found.add("quantum_bytes", message, "no quantum_bytes, or no slots")
        time_ns = rates.quantum_ns(self.quantum_bytes, self.rate)
        if not CYCLE_NS_MIN <= time_ns <= CYCLE_NS_MAX:
            message = f"at this rate a quantum takes {time_ns} ns"
            found.add("quantum_bytes", message, f"{CYCLE_NS_MIN} to {CYCLE_NS_MAX} ns")
        return found

    def _slot_problems(self) -> list[FieldError]:
        """Return errors across `slots`, `slot_ns` and `slot`."""
        found = FieldErrors()
        if self.slots is None:
            for name in ("slot_ns", "slot"):
                if getattr(self, name) is not None:
                    found.add(name, "the class has no slots", f"slots beside it, or no {name}")
            return found
        if self.slot_ns is None:
            found.add("slot_ns", "slots need the time of a slot", "100 to 500000000")
        elif self.slots * self.slot_ns > CYCLE_NS_MAX:
            message = f"{self.slots} slots are a cycle of more than {CYCLE_NS_MAX} ns"
            found.add("slot_ns", message, f"at most {CYCLE_NS_MAX // self.slots}")
        if self.mode == "static":
            expected = f"1 to {self.slots}"
            if self.slot is None:
                found.add("slot", "a class of mode static with slots needs its own", expected)
            elif self.slot > self.slots:
                found.add("slot", f"there are {self.slots} slots", expected)
        return found


PAUSE_FRAMES = "pause-frames"
"""The gap mode that needs a line rate."""

GAP_FRAME_MAX_BYTES = 1514
"""Length of the longest PAUSE frame where none is given: as published, layer 2 without FCS."""

GAPS_WITHOUT_RATE = FieldError(
    "line_rate",
    "PAUSE frames fill the time of a line, and the port has no line rate",
    "a line_rate, or gap_mode accounted",
)


FIFO_BYTES_MIN = 1518
"""Smallest FIFO of a port: one frame of the usual MTU, with FCS."""


class PortSpec(Strict):
    """The requested settings of a port; a setting that is left out keeps its value."""

    model_config = examples(
        {"line_rate": "1Gbit", "counts": "wire"},
        {"line_rate": "500Mbit", "fifo_bytes": 65536, "delay_ns": 100_000_000},
        {"line_rate": "100Mbit", "egress_queues": {"queues": 3, "scheduler": "wfq:4:2:1"}},
    )

    line_rate: LineRate | None = Field(
        default=None, description="Line rate; `none`: frames leave at any rate."
    )
    counts: Literal["layer2", "wire"] | None = Field(
        default=None,
        description="Bytes that take time on the line. `layer2`: the frame with FCS. `wire`: with "
        "preamble and inter-frame gap, 20 bytes more.",
    )
    fifo_bytes: int | None = Field(
        default=None,
        ge=FIFO_BYTES_MIN,
        le=2**40,
        description="Size of the FIFO of unpaced packets, in bytes: at least one frame of 1518 "
        "bytes, since a smaller one loses every such frame.",
    )
    delay_ns: int | None = Field(
        default=None,
        ge=0,
        le=10_000_000_000,
        description="Propagation delay in ns: from the start of transmission to delivery.",
    )
    gap_mode: Literal["accounted", "pause-frames"] | None = Field(
        default=None,
        description="What fills the gaps between paced packets: nothing but time, or real 802.3x "
        "PAUSE frames, where the switch can send them; those need a line rate.",
    )
    gap_frame_max_bytes: int | None = Field(
        default=None,
        ge=60,
        le=9216,
        description="Longest of those PAUSE frames, layer 2 without FCS, in bytes; 1514 if not "
        "given. Only with gap_mode `pause-frames`. A packet that comes in a gap may wait as long.",
    )

    egress_queues: EgressQueuesSetting | None = Field(
        default=None,
        description="Egress queues in place of the FIFO, where the switch has them; `none`: the "
        "FIFO.",
    )

    @property
    def line_rate_bps(self) -> int | None:
        """Line rate in bit/s; None when not given, or taken away."""
        return self.line_rate or None

    def queue_problems(self, line_rate_bps: int | None) -> list[FieldError]:
        """Return errors of the egress queues of a port with this line rate."""
        found = FieldErrors()
        if isinstance(self.egress_queues, EgressQueuesSpec):
            found.add_below("egress_queues.", self.egress_queues.problems(line_rate_bps))
        return found

    def problems(self) -> list[FieldError]:
        """Return errors across fields."""
        return self._gap_problems() + self.queue_problems(self.line_rate_bps)

    def _gap_problems(self) -> list[FieldError]:
        if self.gap_mode == PAUSE_FRAMES and self.line_rate == NO_LINE_RATE:
            return [GAPS_WITHOUT_RATE]
        if self.gap_frame_max_bytes is not None and self.gap_mode != PAUSE_FRAMES:
            message = "only PAUSE frames have a length"
            hint = "gap_mode pause-frames beside it, or no gap_frame_max_bytes (gap-frame none)"
            return [FieldError("gap_frame_max_bytes", message, hint)]
        return []


class MatchSpec(Strict):
    """The packets that belong to a flow; a field that is not given matches anything."""

    ingress_port: PortNumber | None = Field(default=None, description="Port the packet came in by.")
    ether_type: EtherType | None = Field(
        default=None, description="EtherType, behind the VLAN tag if there is one."
    )
    vlan: int | None = Field(
        default=None, ge=0, le=4094, description="VLAN id; 0 matches packets without a tag."
    )
    src: Prefix | None = Field(default=None, description="Source address or prefix.")
    dst: Prefix | None = Field(default=None, description="Destination address or prefix.")
    dscp: Dscp | None = Field(
        default=None, description="DSCP of the IP header (0 matches non-IP too)."
    )
    protocol: Protocol | None = Field(
        default=None, description="IP protocol (IPv6: the first next header)."
    )
    src_port: TransportPort | None = Field(
        default=None, description="TCP or UDP source port, or a range of them."
    )
    dst_port: TransportPort | None = Field(
        default=None, description="TCP or UDP destination port, or a range of them."
    )

    def family(self) -> int | None:
        """Return 4 or 6 when an address says so."""
        for prefix in (self.src, self.dst):
            if prefix is not None:
                return ipaddress.ip_network(prefix).version
        return None

    def problems(self) -> list[FieldError]:
        """Return errors across fields."""
        found = FieldErrors()
        family = self.family()
        if self.src is not None and self.dst is not None:
            other = ipaddress.ip_network(self.dst).version
            if other != family:
                found.add(
                    "match.dst",
                    f"{self.dst!r} is IPv{other} but match.src is IPv{family}",
                    f"an IPv{family} prefix",
                )
        wanted = {4: ETHER_TYPE_IPV4, 6: ETHER_TYPE_IPV6}.get(family or 0)
        if wanted is not None and self.ether_type not in (None, wanted):
            found.add(
                "match.ether_type",
                f"the addresses are IPv{family}, whose EtherType is 0x{wanted:04x}",
                f'"0x{wanted:04x}", or no ether_type',
            )
        for name, port in (("src_port", self.src_port), ("dst_port", self.dst_port)):
            if port is not None and self.protocol not in (None, *PORT_PROTOCOLS):
                found.add(
                    f"match.{name}",
                    "only TCP and UDP have ports",
                    'protocol "tcp" or "udp", or no port',
                )
        return found


class MeterSpec(Strict):
    """A two-rate three-colour marker, colour-blind (RFC 2698).

    Rates count layer-2 bytes without FCS and are rounded to whole bytes per second.
    """

    model_config = examples({"cir": "50Mbit", "pir": "80Mbit", "yellow_dscp": 10})

    cir: Rate = Field(description="Committed information rate: above it packets are yellow.")
    cburst: int | None = Field(
        default=None,
        ge=MIN_BURST_BYTES,
        le=MAX_BURST_BYTES,
        description="Committed burst in bytes. Default: 10 ms at `cir`, at least 15220.",
    )
    pir: Rate | None = Field(
        default=None, description="Peak information rate: above it packets are red. Default: `cir`."
    )
    pburst: int | None = Field(
        default=None,
        ge=MIN_BURST_BYTES,
        le=MAX_BURST_BYTES,
        description="Peak burst in bytes. Default: 10 ms at `pir`, at least `cburst`.",
    )
    drop_red: bool = Field(default=True, description="Whether red packets are dropped.")
    yellow_dscp: Dscp | None = Field(default=None, description="DSCP that yellow packets get.")
    red_dscp: Dscp | None = Field(
        default=None, description="DSCP that red packets get when they are not dropped."
    )

    @property
    def pir_bps(self) -> int:
        """Peak rate in bit/s, with its default."""
        return self.cir if self.pir is None else self.pir

    @property
    def cburst_bytes(self) -> int:
        """Committed burst, with its default."""
        if self.cburst is not None:
            return self.cburst
        return max(10 * FRAME_BYTES_MAX, rates.bytes_per_second(self.cir) // 100)

    @property
    def pburst_bytes(self) -> int:
        """Peak burst, with its default."""
        if self.pburst is not None:
            return self.pburst
        return max(self.cburst_bytes, rates.bytes_per_second(self.pir_bps) // 100)

    @property
    def marks(self) -> bool:
        """Whether colours change the DSCP."""
        return self.yellow_dscp is not None or self.red_dscp is not None

    def problems(self) -> list[FieldError]:
        """Return errors across fields."""
        found = FieldErrors()
        if self.pir is not None and self.pir < self.cir:
            found.add(
                "pir",
                f"{rates.format_rate(self.pir)} is below cir, {rates.format_rate(self.cir)}",
                f"a rate of at least {rates.format_rate(self.cir)}",
            )
        if self.red_dscp is not None and self.drop_red:
            found.add(
                "red_dscp",
                "red packets are dropped, so they cannot be marked",
                "drop_red false, or no red_dscp",
            )
        # The program writes both marks or none, so both must be known.
        if self.marks and not self.drop_red:
            found += [
                FieldError(
                    name,
                    "yellow and red packets are both marked or both left alone",
                    "a DSCP, 0 to 63",
                )
                for name in ("yellow_dscp", "red_dscp")
                if getattr(self, name) is None
            ]
        return found


METER_IN_PLACE = "meter-in-place"
METER_BY_NAME = "meter-by-name"
"""Tags of the two ways to give a flow a meter; no part of a field's path."""


def _meter_form(value: object) -> str:
    return METER_BY_NAME if isinstance(value, str) else METER_IN_PLACE


FlowMeter = Annotated[
    Annotated[MeterSpec, Tag(METER_IN_PLACE)] | Annotated[Name, Tag(METER_BY_NAME)],
    Discriminator(_meter_form),
]


class FlowSpec(Strict):
    """A flow: a match of packets, and their treatment."""

    model_config = examples(
        {"match": {"protocol": "tcp", "dst_port": 5001}, "class": "video"},
        {"match": {"src": "10.0.0.0/24"}, "rate": "100Mbit", "priority": 2000},
        {
            "match": {"dst": "2001:db8::/32"},
            "class": "video",
            "meter": {"cir": "50Mbit", "pir": "80Mbit", "yellow_dscp": 10},
        },
    )

    match: MatchSpec
    priority: int = Field(
        default=DEFAULT_PRIORITY,
        ge=1,
        le=MAX_PRIORITY,
        description="Where several flows match a packet, the one with the highest priority wins. "
        "Among equals pacing_switch takes the one that has been in its table longest; a switch "
        "that was restarted is filled in the order of the flows' names. Flows that overlap should "
        "have different priorities. (Two flows of the same match and priority are refused.)",
    )
    class_name: str | None = Field(
        default=None, alias="class", pattern=NAME_PATTERN, description="Class the packets join."
    )
    rate: Rate | None = Field(
        default=None, description="A rate of its own: the flow gets a static class to itself."
    )
    limit_bytes: LimitBytes | None = Field(
        default=None, description="As in a class; only with `rate`."
    )
    allowance_ns: AllowanceNs = None
    meter: FlowMeter | None = Field(
        default=None,
        description="Meter in front of the class: a meter's name, or one for this flow alone. "
        "Without one all packets are green.",
    )

    set_dscp: Dscp | None = Field(
        default=None, description="DSCP that the packets get, where the switch can set one."
    )

    @property
    def meter_name(self) -> str | None:
        """Name of the meter, when it is one by name."""
        return self.meter if isinstance(self.meter, str) else None

    def problems(self) -> list[FieldError]:
        """Return errors across fields."""
        found = FieldErrors(self.match.problems())
        if isinstance(self.meter, MeterSpec):
            found.add_below("meter.", self.meter.problems())
        if self.class_name is not None and self.rate is not None:
            found.add("rate", "a flow has a class or a rate of its own", "one of class, rate")
        does = (self.class_name, self.rate, self.meter, self.set_dscp)
        if all(value is None for value in does):
            found.add("class", "the flow has no class, rate or meter", "one of class, rate")
        if self.rate is None:
            found += [
                FieldError(name, "needs a rate of the flow's own", "a rate as well")
                for name in ("limit_bytes", "allowance_ns")
                if getattr(self, name) is not None
            ]
        return found

    def private_class(self) -> ClassSpec | None:
        """Return the class of a flow that has a rate of its own."""
        if self.rate is None:
            return None
        return ClassSpec(
            rate=self.rate,
            limit_bytes=DEFAULT_LIMIT_BYTES if self.limit_bytes is None else self.limit_bytes,
            allowance_ns=self.allowance_ns,
        )


def stored(spec: BaseModel) -> dict[str, Any]:
    """Return the JSON form under which a resource is stored; reading it gives an equal one."""
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)
