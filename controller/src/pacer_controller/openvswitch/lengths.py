"""Checks the lengths inside a message of OpenFlow 1.3 before os-ken reads it.

os-ken moves from one part of a message to the next by the lengths in it. A length of 0 would keep
it at the same place for ever, and block everything in its thread.
"""

from collections.abc import Iterator

from os_ken.ofproto import ofproto_v1_3 as ofp

_ACTIONS_AT = 8
"""Offset of the actions in an instruction."""

_MATCH_AT = 48
"""Offset of the match in a flow's statistics (OpenFlow 1.3.5, 7.3.5.2)."""

_WITH_ACTIONS = (ofp.OFPIT_WRITE_ACTIONS, ofp.OFPIT_APPLY_ACTIONS)


_WITHOUT_LENGTHS = (ofp.OFPMP_QUEUE, ofp.OFPMP_PORT_STATS)


class LengthError(ValueError):
    """A part is shorter than its header or exceeds the message, or its parts are unknown."""


def check(message: bytes) -> None:
    """Check the parts of a message whose parts have lengths of their own.

    Args:
        message: all of it, as long as its header says.

    Raises:
        LengthError: a part is shorter than its head, or longer than what is left, or the message
            has statistics whose parts are not known here.

    """
    if message[1] != ofp.OFPT_MULTIPART_REPLY:
        return
    start = ofp.OFP_MULTIPART_REPLY_SIZE
    kind = _number(message, ofp.OFP_HEADER_SIZE, len(message))
    if kind == ofp.OFPMP_FLOW:
        for at, end in _parts(message, start, len(message), length_at=0, least=_MATCH_AT + 8):
            _check_flow(message, at, end)
    elif kind == ofp.OFPMP_METER_CONFIG:
        for at, end in _parts(message, start, len(message), length_at=0, least=8):
            _all(message, at + 8, end, least=12)
    elif kind not in _WITHOUT_LENGTHS:
        raise LengthError(f"statistics of type {kind}, which are not asked for")


def _check_flow(message: bytes, at: int, end: int) -> None:
    match_bytes = _number(message, at + _MATCH_AT + 2, end)
    instructions_at = at + _MATCH_AT + (match_bytes + 7) // 8 * 8
    if match_bytes < 4 or instructions_at > end:
        raise LengthError(f"a match of {match_bytes} bytes in a flow of {end - at}")
    for place, behind in _parts(message, instructions_at, end, length_at=2, least=8):
        if _number(message, place, behind) in _WITH_ACTIONS:
            _all(message, place + _ACTIONS_AT, behind, least=8)


def _all(message: bytes, start: int, end: int, *, least: int) -> None:
    """Check the parts from `start` to `end`, each with a type and then its length."""
    for _ in _parts(message, start, end, length_at=2, least=least):
        pass


def _parts(
    message: bytes, start: int, end: int, *, length_at: int, least: int
) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends; each has its length at `length_at`."""
    while start < end:
        length = _number(message, start + length_at, end)
        if not least <= length <= end - start:
            raise LengthError(f"a part of {length} bytes, {least} to {end - start} expected")
        yield start, start + length
        start += length


def _number(message: bytes, at: int, end: int) -> int:
    """Return the 16-bit number at a place, which must lie before `end`."""
    if at + 2 > end:
        raise LengthError("a part ends inside its head")
    return int.from_bytes(message[at : at + 2], "big")
