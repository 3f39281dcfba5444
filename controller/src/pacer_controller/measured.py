"""Flows that gtrcnet measures apart from their ports: settings of a switch, like `wire`.

`match` has the same form as in a flow of `pacer`; the rate is that of the virtual bottleneck. The
flows take slots (`SLOTS` of p4src/include/burstiness.p4) in the order of the list. If the list
changes, earlier measurements stay with their slots.
"""

from typing import Any, Self

from pydantic import Field, ValidationError

from pacer_controller.fields import Rate, Strict
from pacer_controller.schemas import MatchSpec

MAX_MEASURED_FLOWS = 28
"""`MEASURED_FLOWS` of p4src/include/burstiness.p4."""


class Problems(ValueError):  # noqa: N818 (what is wrong, in the words of those who checked)
    """The settings of a measured flow are not valid; the text says why."""


class MeasuredFlowSpec(Strict):
    """The packets of a measured flow, and the rate of its virtual bottleneck."""

    match: MatchSpec = Field(description="As of a flow; the first of several that match counts.")
    bottleneck: Rate | None = Field(
        default=None,
        description="Rate of the flow's virtual bottleneck; without one, the switch's own.",
    )

    @classmethod
    def checked(cls, value: Any) -> Self:
        """Return the flow that a configuration describes.

        Raises:
            Problems: it is not valid; the text names the fields at fault.

        """
        try:
            found = cls.model_validate(value)
        except ValidationError as error:
            parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            raise Problems("; ".join(parts)) from None
        wrong = [f"{e.field}: {e.message}; want {e.expected}" for e in found.match.problems()]
        if wrong:
            raise Problems("; ".join(wrong))
        return found
