"""The newest events, as JSON that is decoded when somebody reads it.

Thousands of events as objects would make each full garbage collection take tens of milliseconds,
for which all requests wait.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic_core import from_json, to_json

Event = dict[str, Any]
"""Members `id`, `time`, `kind`, `switch`, `message`, `data`."""

_Kept = tuple[int, str, str | None, bytes]
"""Number, kind, switch and JSON. The garbage collector does not track tuples of such values."""


class KeptEvents:
    """Events in the order of their numbers.

    Args:
        events: the first ones, oldest first.
        most: the number of events from which on the oldest one goes when another one comes.

    """

    def __init__(self, events: Iterable[Event], most: int) -> None:
        self._kept: deque[_Kept] = deque(map(_encoded, events), maxlen=most)

    def __iter__(self) -> Iterator[Event]:
        return map(_decoded, self._kept)

    @property
    def last_id(self) -> int:
        """Number of the newest event; 0 when there is none."""
        return self._kept[-1][0] if self._kept else 0

    def add(self, event: Event) -> None:
        """Add an event, in its place."""
        kept = _encoded(event)
        if kept[0] > self.last_id:
            self._kept.append(kept)
        else:
            together = sorted([*self._kept, kept], key=lambda one: one[0])
            self._kept = deque(together, self._kept.maxlen)

    def get(self, number: int) -> Event | None:
        """Return an event by its number."""
        return next((_decoded(one) for one in reversed(self._kept) if one[0] == number), None)

    def select(
        self,
        after: int,
        kinds: Collection[str],
        switches: Collection[str],
        limit: int | None = None,
        *,
        newest: bool = False,
    ) -> tuple[list[Event], int]:
        """Return the events after a number, of these kinds and switches (none given: all).

        Args:
            after: the number.
            kinds: the kinds.
            switches: the names of the switches.
            limit: the most events to return; None: all.
            newest: whether these are the newest ones, not the oldest.

        Returns:
            The events, oldest first, and their number without the limit.

        """
        found: list[_Kept] = []
        for one in reversed(self._kept):
            number, kind, switch, _ = one
            if number <= after:
                break
            if (not kinds or kind in kinds) and (not switches or switch in switches):
                found.append(one)
        most = len(found) if limit is None else limit
        chosen = found[:most] if newest else found[max(0, len(found) - most) :]
        return [_decoded(one) for one in reversed(chosen)], len(found)


def _encoded(event: Event) -> _Kept:
    return event["id"], event["kind"], event["switch"], to_json(event)


def _decoded(kept: _Kept) -> Event:
    found: Event = from_json(kept[3])
    return found
