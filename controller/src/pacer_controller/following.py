"""The setting `follow` of a class: the bottleneck that its rate follows, and the rate's limits."""

from pydantic import Field

from pacer_controller import rates
from pacer_controller.fields import Name, Rate, Strict
from pacer_controller.problems import FieldError

CLASSES_MOST = 32
"""Most classes of a controller that follow: each bottleneck is read twenty times a second."""

FIFO_BYTES_MIN = 15_180
"""Ten frames of 1518 bytes: a smaller FIFO leaves no range between one frame and a loss."""


class FollowSpec(Strict):
    """The bottleneck that the rate of a class follows, and the limits of the rate.

    The controller raises and lowers the class's `rate` so that the queue of a virtual bottleneck
    downstream stays under the FIFO there.
    """

    switch: Name = Field(description="Switch that measures: it runs gtrcnet, with a bottleneck.")
    port: int = Field(
        ge=1,
        le=3,
        description="Port of a wire of that switch, by which the class's packets come in: 1 to 3.",
    )
    fifo_bytes: int = Field(
        ge=FIFO_BYTES_MIN,
        le=2**32 - 1,
        description="FIFO of the bottleneck: the queue is to stay under it. At least ten frames.",
    )
    least_rate: Rate = Field(description="Lowest rate that the class gets.")
    most_rate: Rate = Field(description="Highest rate that the class gets.")

    def problems(self, rate_bps: int | None) -> list[FieldError]:
        """Return errors across fields, and with the class's rate."""
        least, most = map(rates.format_rate, (self.least_rate, self.most_rate))
        if self.least_rate > self.most_rate:
            message = f"{least} is above most_rate, {most}"
            return [FieldError("follow.least_rate", message, f"a rate of at most {most}")]
        if rate_bps is not None and not self.least_rate <= rate_bps <= self.most_rate:
            message = f"{rates.format_rate(rate_bps)} is not a rate that the class may follow to"
            return [FieldError("rate", message, f"{least} to {most}")]
        return []
