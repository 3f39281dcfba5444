"""Errors of a P4Runtime connection, and how to react to them."""

import logging
import re
from collections.abc import Sequence

import finsy as fy

from pacer_controller.rows import Change
from pacer_controller.southbound import Refusal

_GONE = {
    fy.GRPCStatusCode.UNAVAILABLE,
    fy.GRPCStatusCode.DEADLINE_EXCEEDED,
    fy.GRPCStatusCode.CANCELLED,
    # Another controller became primary during the write.
    fy.GRPCStatusCode.PERMISSION_DENIED,
}


def gone(error: fy.P4ClientError) -> bool:
    """Whether the connection or the primary role is lost, so the request is not at fault."""
    return error.code in _GONE


class _LastErrors(logging.Handler):
    """Keeps the exception for which finsy gave up a switch: finsy only logs it, and cancels."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL)
        self.by_switch: dict[str, BaseException] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception under the switch's name, from a task name "fy:NAME|..."."""
        if record.exc_info and record.exc_info[1] and record.args:
            task = str(record.args[0]) if isinstance(record.args, tuple) else ""
            name = task.removeprefix("fy:").partition("|")[0]
            self.by_switch[name] = record.exc_info[1]


_last_errors = _LastErrors()
logging.getLogger("finsy").addHandler(_last_errors)


def take_last_error(switch: str) -> BaseException | None:
    """Return and forget the exception for which finsy gave up a switch."""
    return _last_errors.by_switch.pop(switch, None)


def refusals(error: fy.P4ClientError, batch: Sequence[Change]) -> list[Refusal]:
    """Return the refused writes of a batch; without details, all of them."""
    full = fy.GRPCStatusCode.RESOURCE_EXHAUSTED
    if not error.details:
        return [Refusal(c.row, error.message, error.code == full) for c in batch]
    return [
        Refusal(
            batch[index].row,
            detail.message or detail.canonical_code.name,
            detail.canonical_code == full,
        )
        for index, detail in sorted(error.details.items())
        if index < len(batch)
    ]


def election_id_taken(error: BaseException | None) -> bool:
    """Whether a switch refused because another live controller has the election id.

    Servers word it differently, and finsy knows the wording of two.
    """
    return (
        isinstance(error, fy.P4ClientError)
        and error.code == fy.GRPCStatusCode.INVALID_ARGUMENT
        and re.search(r"election.?id", error.message, re.IGNORECASE) is not None
    )


def describe(error: fy.P4ClientError) -> str:
    """Return the switch's error in one line."""
    if error.details:
        first = next(iter(error.details.values()))
        return f"{first.canonical_code.name}: {first.message}"
    return f"{error.code.name}: {error.message}"


def unimplemented(error: fy.P4ClientError) -> bool:
    """Whether the switch does not implement the request."""
    code = fy.GRPCStatusCode.UNIMPLEMENTED
    return error.code == code or any(d.canonical_code == code for d in error.details.values())
