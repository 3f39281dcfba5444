"""Answers, as the OpenAPI document shows them. Clients ignore members they do not know."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pacer_controller.following import FollowSpec
from pacer_controller.users import Role


class View(BaseModel):
    """Base of all views: members without a field are passed on."""

    model_config = ConfigDict(extra="allow")


class ProblemError(BaseModel):
    """One field at fault."""

    field: str
    message: str
    expected: str


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:pacer:problem:invalid"])
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ProblemError] = []


class Page(View):
    """A page of a list."""

    total: int = Field(description="Resources that pass the filters, on all pages.")
    next: str | None = Field(description="Path of the next page; null on the last.")


class Accepted(View):
    """Members that every resource has."""

    state: str = Field(description="`applied`, `pending` (switch away) or `failed`.")
    state_reason: str | None
    revision: int | None = Field(description="Number of the change that made it so; its ETag.")


class ClassView(Accepted):
    """A class."""

    name: str
    index: int = Field(description="Class number on the switch.")
    mode: str
    rate: str | None
    rate_bps: int | None
    limit_bytes: int
    allowance: str | None = Field(description="`auto`, `exact` or `fixed`; null: not paced.")
    allowance_ns: int | None
    gap_bytes: int | None
    tick_hz: int | None
    headroom_percent: int | None
    threshold_ns: int | None
    quantum_bytes: int | None
    slots: int | None
    slot_ns: int | None
    slot: int | None
    window_margin_bytes: int | None
    ecn_threshold_bytes: int | None
    port: int | None
    follow: FollowSpec | None


class ClassList(Page):
    """Classes of a switch."""

    classes: list[ClassView]


class MeterView(Accepted):
    """A meter, defaults filled in."""

    name: str
    cir: str
    cir_bps: int
    cburst: int
    pir: str
    pir_bps: int
    pburst: int
    drop_red: bool
    yellow_dscp: int | None
    red_dscp: int | None


class MeterList(Page):
    """Meters of a switch."""

    meters: list[MeterView]


class FlowView(Accepted):
    """A flow."""

    name: str
    match: dict[str, str | int]
    priority: int
    class_name: str | None = Field(alias="class")
    class_index: int = Field(description="Number of its class on the switch; 0: unclassified.")
    rate: str | None
    rate_bps: int | None
    limit_bytes: int | None
    allowance: str | None = Field(description="`auto`, `exact` or `fixed`; null: not paced.")
    allowance_ns: int | None
    meter: dict[str, Any] | None
    meter_name: str | None
    set_dscp: int | None
    entries: int = Field(description="Entries it needs on the switch: ranges may need several.")


class FlowList(Page):
    """Flows of a switch."""

    flows: list[FlowView]


class PortView(Accepted):
    """A port with its actual and its requested settings."""

    port: int
    interface: str
    up: bool | None = Field(description="Whether it can carry frames; null: not known.")
    line_rate: str | None
    line_rate_bps: int | None
    counts: str | None
    fifo_bytes: int | None
    delay_ns: int | None
    gap_mode: str | None
    gap_frame_max_bytes: int | None = Field(
        description="Longest PAUSE frame in a gap, without FCS; null: there are none."
    )
    egress_queues: dict[str, Any] | None = Field(
        description="Egress queues that the switch has in place of the FIFO; null: none."
    )
    desired: dict[str, Any] | None = Field(description="What was asked for; null: nothing.")


class PortList(Page):
    """Ports of a switch."""

    ports: list[PortView]


class SwitchView(View):
    """A switch."""

    name: str
    kind: str
    state: str = Field(
        description="`connected`, `pending` (away) or `backup` (another is primary); where another "
        "controller of the store drives it, as that one says."
    )
    controller: str | None = Field(description="Which other one drives it; empty: none does.")
    reachable: bool = Field(description="Whether the controller has a connection to it.")
    last_error: str | None = Field(description="Why it is not connected.")
    configured: bool = Field(description="Whether the configuration defines it.")
    ports: list[PortView]
    classes: int
    flows: int
    meters: int
    revision: int


class SwitchList(Page):
    """Switches."""

    switches: list[SwitchView]


class ClassHistory(View):
    """Rates of a class, or of a flow with a rate of its own."""

    kind: str = Field(description="`class` or `flow`.")
    name: str
    points: list[tuple[float, int | None, int | None]] = Field(
        description="Age in s, achieved rate and rate in bit/s; oldest first."
    )


class History(View):
    """Rates of a switch's classes over the last minute."""

    switch: str
    overdue: int = Field(description="Readings that were given up because they took too long.")
    classes: list[ClassHistory]


class Statistics(View):
    """Counters and rates of a switch; null where the switch cannot say."""

    switch: str
    state: str
    reachable: bool = Field(description="Whether the controller has a connection to it.")
    last_error: str | None = Field(description="Why it is not connected.")
    now_ns: int | None = Field(description="The switch's clock.")
    interval_s: float | None = Field(description="Time over which rates were taken.")
    classes: list[dict[str, Any]] = Field(
        description="`below_rate` says why a class is below its rate: `reason` is `no-demand` "
        "(nothing to send for a part of the time), `limit` (packets lost at its limit), `line` "
        "(the line of its port is full; for a class without a port: every line of the switch) or "
        "`stalled` (the machine ran something else for `stalled_ms`); null: at its rate or unknown."
    )
    flows: list[dict[str, Any]]
    drops: dict[str, dict[str, int]] | None = Field(description="Drops of the program by cause.")
    ports: list[dict[str, Any]]
    virtual_bottleneck: list[dict[str, Any]] | None


class TraceView(View):
    """The trace of a frame that might come in."""

    switch: str
    trace: dict[str, Any] = Field(description="A PacketTrace of `switch/proto/packet_trace.proto`.")


class Bandwidth(View):
    """Bandwidth that gtrcnet measured at a port."""

    switch: str
    port: int
    bottleneck_bps: int | None
    bin_ns: int
    window_ns: int
    vb_max_bytes: int
    bins: dict[str, list[int]] = Field(description="Columns `start_ns`, `bytes`.")
    windows: dict[str, list[int]] = Field(
        description="Columns `start_ns`, `bytes`, `vb_max_bytes`."
    )


class Burstiness(View):
    """Burstiness of a port or a flow (Takano et al.), as gtrcnet measured it."""

    switch: str
    port: int | None
    flow: str | None
    bottleneck_bps: int | None = Field(description="Rate of the static virtual bottleneck.")
    window_ns: int
    last_ns: int | None = Field(description="When the last packet came, on the switch's clock.")
    summary: dict[str, int] = Field(
        description="Mean and maximum over all windows, from the first to the last with packets."
    )
    windows: dict[str, list[int | None]] = Field(
        description="Columns `start_ns`, `bytes`, `abw_bps`, `vb_max_bytes`, "
        "`dynamic_vb_max_bytes` (null where it is not known), `previous_window_vb_max_bytes`; "
        "windows without packets are left out."
    )


class EventView(View):
    """Something that happened."""

    id: int
    time: str
    kind: str
    switch: str | None
    message: str
    data: dict[str, Any]


class EventList(Page):
    """Events, oldest first."""

    events: list[EventView]


class ChangeView(View):
    """A resource before and after."""

    op: str
    kind: str
    switch: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class StateResult(View):
    """The changes that replacing the whole state made, or would make."""

    dry_run: bool
    revision: int
    summary: dict[str, int]
    changes: list[ChangeView]
    truncated: bool


class StoreView(View):
    """The store of desired state, and the assignment of switches to controllers."""

    kind: Literal["sqlite", "etcd"]
    epoch: int = Field(description="Upper 64 bits of the election ids that are bid.")
    controller: str | None = Field(description="This controller; null without others.")
    controllers: list[str] = Field(description="The controllers that are there.")
    driven: dict[str, str] | None = Field(
        description="Controller by switch; null where this one drives all."
    )


class ConnectionsView(BaseModel):
    """Connections of clients."""

    users: int = Field(description="Those that have shown the right to something.")
    strangers: int = Field(description="The others.")


class ControllerView(View):
    """The state of this controller."""

    version: str
    user: str | None = Field(description="Who asks; null: users have no tokens.")
    role: Role = Field(description="What the user may do.")
    connections: ConnectionsView
    refusals: dict[str, int] = Field(
        description="What clients were refused since the controller started, by cause."
    )
    events_dropped: int = Field(description="Events that the store did not take.")


class Health(BaseModel):
    """The service runs; the number of its switches that hold the desired state."""

    status: str
    version: str
    switches: int
    connected: int


class Readiness(BaseModel):
    """Whether the service can do its work."""

    ready: bool
    switches: dict[str, str] | None = Field(
        description="State by switch; null for a client without a token, if users have tokens."
    )
