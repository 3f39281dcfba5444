"""Egress queues of a port: the requested settings, and a form that compares with a switch's.

`scheduler` and `aqm` are the words of the switch's own option (`queue_words`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from pacer_controller.fields import Rate, Strict, examples, refuse, show
from pacer_controller.problems import FieldError, FieldErrors
from pacer_controller.queue_words import (
    AQMS,
    DEPTH_MOST_BYTES,
    DEPTH_MOST_PACKETS,
    SCHEDULERS,
    SWITCH_BUFFER,
    WordsError,
    check_aqm,
    check_scheduler,
)
from pacer_controller.rates import format_rate

QUEUES_MAX = 64
NO_QUEUES = "none"
"""Stored value of the egress queues "none": the port has its FIFO."""

WORDS_MAX = 4096
"""Longest text of a scheduler or of active queue management."""

_BUFFER_MAX_BYTES = 2**40

_STRICT = "strict"
_NO_AQM = "none"
_BURST_BYTES = 1518
"""The switch's default for what a queue with a rate may make up."""

_SETTINGS = (
    "fifo_bytes",
    "fifo_packets",
    "rate_bps",
    "rate_pps",
    "min_rate_bps",
    "buffer_share_ppm",
    "burst_bytes",
    "aqm",
)


def _read_aqm(value: object) -> str:
    if not isinstance(value, str):
        raise refuse(f"{show(value)} is no active queue management", AQMS)
    try:
        check_aqm(value)
    except WordsError as error:
        raise refuse(str(error), AQMS) from None
    return value


_Aqm = Annotated[str, BeforeValidator(_read_aqm), Field(max_length=WORDS_MAX)]


def _read_buffer(value: object) -> int | str:
    if value == SWITCH_BUFFER:
        return SWITCH_BUFFER
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _BUFFER_MAX_BYTES:
        return value
    raise refuse(f"{show(value)} is no buffer", f'1 to {_BUFFER_MAX_BYTES} bytes, or "switch"')


_Buffer = Annotated[
    Annotated[int, Field(ge=1, le=_BUFFER_MAX_BYTES)] | Literal["switch"],
    BeforeValidator(_read_buffer),
]


@dataclass(frozen=True)
class QueueFeatures:
    """The features of the egress queues of a switch; the defaults are a pacing_switch's.

    Attributes:
        trees: whether the scheduler may be a tree.
        aqm: whether queues can have active queue management.
        min_rates: whether queues can have minimum rates.
        buffers: whether queues can have a common buffer.
        fifo_max_bytes: the largest depth in bytes.
        packets_max: the largest depth in packets.
        burst_max_bytes: the largest burst.

    """

    trees: bool = True
    aqm: bool = True
    min_rates: bool = True
    buffers: bool = True
    fifo_max_bytes: int = DEPTH_MOST_BYTES
    packets_max: int = DEPTH_MOST_PACKETS
    burst_max_bytes: int = DEPTH_MOST_BYTES


class QueueSpec(Strict):
    """The requested settings of one egress queue; the others have their defaults."""

    queue: int = Field(ge=0, lt=QUEUES_MAX, description="Number: the priority that leads to it.")
    fifo_bytes: int | None = Field(
        default=None,
        ge=1,
        le=DEPTH_MOST_BYTES,
        description="Depth in bytes. Default: the port's `fifo_bytes`.",
    )
    packets: int | None = Field(
        default=None,
        ge=1,
        le=DEPTH_MOST_PACKETS,
        description="Depth in packets. Default: no limit of its own.",
    )
    rate: Rate | None = Field(
        default=None, description="Highest rate, layer 2 with FCS. Default: the line's."
    )
    min_rate: Rate | None = Field(
        default=None,
        description="Minimum rate, layer 2 with FCS: it goes before others until it has had it. "
        "Default: none.",
    )
    buffer_share_ppm: int | None = Field(
        default=None,
        ge=1,
        le=1_024_000_000,
        description="Share of the common buffer, in millionths; only with `buffer_bytes`. Default: "
        "1000000.",
    )
    burst_bytes: int | None = Field(
        default=None,
        ge=0,
        le=DEPTH_MOST_BYTES,
        description="Bytes that it may make up after others have kept it waiting; only with "
        "`rate`. Default: 1518.",
    )
    aqm: _Aqm | None = Field(
        default=None,
        description="Active queue management of its own, or `none`.",
    )

    def unsupported(self, features: QueueFeatures) -> FieldErrors:
        """Return an error for each setting that a switch with these features lacks."""
        found = FieldErrors()
        if self.aqm not in (None, _NO_AQM) and not features.aqm:
            found.append(_LACKS_AQM)
        if self.min_rate is not None and not features.min_rates:
            message = f"queue {self.queue}: the switch's queues have no minimum rates"
            found.add("min_rate", message, "no min_rate")
        for name, most in (
            ("fifo_bytes", features.fifo_max_bytes),
            ("packets", features.packets_max),
            ("burst_bytes", features.burst_max_bytes),
        ):
            value = getattr(self, name)
            if value is not None and value > most:
                message = f"queue {self.queue}: {value} is above the switch's largest, {most}"
                found.add(name, message, f"at most {most}")
        return found


_LACKS_AQM = FieldError("aqm", "the switch's queues have no active queue management", "no aqm")


QUEUES_IN_PLACE = "egress-queues"
QUEUES_BY_WORD = "no-egress-queues"
"""Tags of the two ways to give a port queues; no part of a field's path."""


class EgressQueuesSpec(Strict):
    """The requested egress queues of a port, in place of its FIFO."""

    model_config = examples(
        {"queues": 8},
        {
            "queues": 3,
            "scheduler": "wfq:4:2:1",
            "aqm": "codel",
            "settings": [{"queue": 0, "rate": "10Mbit"}],
        },
    )

    queues: int = Field(ge=1, le=QUEUES_MAX, description="How many there are.")
    scheduler: str | None = Field(
        default=None,
        max_length=WORDS_MAX,
        description="The order in which they send, as the switch's option `scheduler=` has it: "
        "`strict` (default), `drr:4:2:1`, `wfq:4:2:1`, or a tree, such as "
        "`strict{q2+wfq{paced:4+q1:2+q0}}`; `paced` is the place of held packets.",
    )
    aqm: _Aqm | None = Field(
        default=None,
        description="Active queue management of the queues without their own, as the switch's "
        "option `aqm=` has it: `none` (default), `codel:5ms:100ms:ecn`.",
    )
    buffer_bytes: _Buffer | None = Field(
        default=None,
        description="A buffer that all queues have in common; `switch`: that of the switch "
        "(`--switch-buffer`), together with the queues of other ports. Default: none.",
    )
    settings: list[QueueSpec] = Field(
        default=[], max_length=QUEUES_MAX, description="Settings of single queues."
    )

    def problems(self, line_rate_bps: int | None = None) -> FieldErrors:
        """Return errors across fields, for a port with this line rate."""
        found = FieldErrors()
        seen: set[int] = set()
        for place, one in enumerate(self.settings):
            at = f"settings.{place}."
            if one.queue >= self.queues:
                message = f"queue {one.queue}: the port has queues 0 to {self.queues - 1}"
                found.add(f"{at}queue", message, f"0 to {self.queues - 1}, or more queues")
            if one.queue in seen:
                found.add(f"{at}queue", f"queue {one.queue} is given twice", "each queue once")
            seen.add(one.queue)
            if one.buffer_share_ppm is not None and self.buffer_bytes is None:
                found.add(f"{at}buffer_share_ppm", "there is no common buffer", "buffer_bytes")
            if one.burst_bytes is not None and one.rate is None:
                found.add(f"{at}burst_bytes", "only a rate has a burst", "a rate as well")
            if one.rate is not None and line_rate_bps is not None and one.rate > line_rate_bps:
                line = format_rate(line_rate_bps)
                message = (
                    f"queue {one.queue}: {format_rate(one.rate)} is above the line rate, {line}"
                )
                found.add(f"{at}rate", message, f"a rate of at most {line}")
            if one.min_rate is not None and one.rate is not None and one.min_rate > one.rate:
                message = f"{format_rate(one.min_rate)} is above the rate, {format_rate(one.rate)}"
                found.add(f"{at}min_rate", f"queue {one.queue}: {message}", "at most the rate")
        self._add_scheduler_problem(found, line_rate_bps)
        return found

    def unsupported(self, features: QueueFeatures) -> FieldErrors:
        """Return an error for each setting that a switch with these features lacks."""
        found = FieldErrors()
        if "{" in (self.scheduler or "") and not features.trees:
            message = "the switch has no trees of schedulers"
            found.add("scheduler", message, "strict, drr:4:2:1 or wfq:4:2:1")
        if self.aqm not in (None, _NO_AQM) and not features.aqm:
            found.append(_LACKS_AQM)
        if self.buffer_bytes is not None and not features.buffers:
            message = "the switch's queues have no common buffer"
            found.add("buffer_bytes", message, "no buffer_bytes and buffer_share_ppm")
        for place, one in enumerate(self.settings):
            found.add_below(f"settings.{place}.", one.unsupported(features))
        return found

    def _add_scheduler_problem(self, found: FieldErrors, line_rate_bps: int | None) -> None:
        minima_bps = {one.queue: one.min_rate for one in self.settings if one.min_rate is not None}
        try:
            check_scheduler(self.scheduler or _STRICT, self.queues, line_rate_bps, minima_bps)
        except WordsError as error:
            found.add("scheduler", str(error), SCHEDULERS)

    def wanted(self) -> dict[str, Any]:
        """Return the settings under the names that `plain` reads."""
        settings = [
            {
                "queue": one.queue,
                "fifo_bytes": one.fifo_bytes,
                "fifo_packets": one.packets,
                "rate_bps": one.rate,
                "min_rate_bps": one.min_rate,
                "buffer_share_ppm": one.buffer_share_ppm,
                "burst_bytes": one.burst_bytes,
                "aqm": one.aqm,
            }
            for one in self.settings
        ]
        return {
            "queues": self.queues,
            "scheduler": self.scheduler,
            "aqm": self.aqm,
            "buffer_bytes": self.buffer_bytes,
            "settings": settings,
        }


def _form(value: object) -> str:
    return QUEUES_BY_WORD if isinstance(value, str) else QUEUES_IN_PLACE


EgressQueuesSetting = Annotated[
    Annotated[EgressQueuesSpec, Tag(QUEUES_IN_PLACE)]
    | Annotated[Literal["none"], Tag(QUEUES_BY_WORD)],
    Discriminator(_form),
]


def plain(queues: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in one form: defaults of single queues left out, sorted."""
    settings = []
    buffer_bytes = SWITCH_BUFFER if queues.get("switch_buffer") else queues.get("buffer_bytes")
    for one in sorted(queues.get("settings") or (), key=lambda one: int(one["queue"])):
        given = {name: one[name] for name in _SETTINGS if one.get(name) is not None}
        if "rate_bps" in given and given.get("burst_bytes") == _BURST_BYTES:
            del given["burst_bytes"]
        if given:
            settings.append({"queue": one["queue"], **given})
    return {
        "queues": queues["queues"],
        "scheduler": queues.get("scheduler") or _STRICT,
        "aqm": queues.get("aqm") or _NO_AQM,
        **({"buffer_bytes": buffer_bytes} if buffer_bytes is not None else {}),
        "settings": settings,
    }


def text(queues: Mapping[str, Any] | None) -> str:
    """Return the settings as a text that compares by value; None: the port has a FIFO."""
    return NO_QUEUES if queues is None else json.dumps(plain(queues), separators=(",", ":"))


def message(queues: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the members of the switch's message."""
    if queues.get("buffer_bytes") != SWITCH_BUFFER:
        return dict(queues)
    rest = {name: value for name, value in queues.items() if name != "buffer_bytes"}
    return {**rest, "switch_buffer": True}


def read(written: str) -> dict[str, Any] | None:
    """Return the settings that `text` wrote."""
    return None if written == NO_QUEUES else dict(json.loads(written))
