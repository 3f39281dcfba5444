"""What the store in etcd keeps under which key, and how: the layout of `etcd`.

    root                            JSON: the generation of each set, as [number, name]
    heads/SET                       the name of the newest write to a set
    shapes/SET                      the name of the newest write to a set that others depend on
    data/SET/GENERATION/KIND/NAME   JSON: a resource, or the settings of a switch
    events/TIME-WRITE+N             JSON: the events of a write, after N others of its revision
    sweep/WRITE                     JSON: keys to be deleted once their writer is done or gone
    epoch, members/, leases/, status/   see `leases`

A set is the resources of a switch, by the switch's name; that without a name is the list of
switches that requests made.

A resource's revision is that of its key, or what its value says: a generation copies what has not
changed. A set's is its head's, or its generation's number, whichever is higher.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pacer_controller.records import Record, index_of, record_of, stamped
from pacer_controller.schemas import stored
from pacer_controller.stores.base import Event

SETTINGS = "switch"
"""Kind of what is in the list of switches."""

Values = dict[tuple[str, str], tuple[Any, int]]
"""Content of a set by kind and name: a record or settings, and its revision."""


@dataclass
class ContentSet:
    """What is known of a set, as etcd has it.

    Attributes:
        head: revision of the head; 0: none.
        shape: revision of the shape; 0: none.
        known: a revision up to which it is known, by own writes; what all is known of may be newer.
        generation: number and name; the first has no key in `root`.
        values: the content.

    """

    head: int = 0
    shape: int = 0
    known: int = 0
    generation: tuple[int, str] = (0, "0")
    values: Values = field(default_factory=dict)

    @property
    def base(self) -> int:
        """Revision of the newest write."""
        return max(self.head, self.generation[0])


@dataclass
class Plan:
    """A write in etcd's terms."""

    name: str
    sets: Mapping[str, Mapping[tuple[str, str], tuple[Any, int] | None]]
    """What changes, by set, kind and name; revision 0: that of the write."""
    gone: frozenset[str]
    """Sets of which nothing stays."""
    events: Sequence[Event]
    bases: Mapping[str, int]
    shaped: Collection[str] = ()
    """Sets of which something changes that other resources depend on."""
    whole: bool = True
    """Whether it is made as a whole and depends on all of its sets (`base.Store.write`)."""


@dataclass(frozen=True)
class Made:
    """What became of a write.

    Attributes:
        revision: of the write.
        heads: revisions of the heads of its sets before.
        stale: kind and name of what was not made, because others have changed it.

    """

    revision: int
    heads: Sequence[int]
    stale: frozenset[tuple[str, str]] = frozenset()


def encode(value: Any, revision: int) -> str:
    """Return a record or settings as JSON; the revision only if it is not the key's."""
    made: dict[str, Any] = {"revision": revision} if revision else {}
    if isinstance(value, Mapping):
        return json.dumps({**made, "settings": value})
    index = index_of(value)
    if index is not None:
        made["index"] = index
    return json.dumps({**made, "spec": stored(value.spec)})


def with_revision(value: Any, revision: int, number: int) -> tuple[Any, int]:
    """Return a record or settings with their revision: their own, or that of the generation."""
    revision = revision or number
    return (value if isinstance(value, Mapping) else stamped(value, revision)), revision


def decode(kind: str, name: str, kv: Any) -> tuple[Any, int]:
    """Return a record or settings, and the revision.

    Raises:
        ValueError, KeyError: it is none.

    """
    made = json.loads(kv.value)
    revision = int(made.get("revision", kv.mod_revision))
    if kind == SETTINGS:
        return made["settings"], revision
    record: Record = record_of(kind, name, made.get("index"), made["spec"], revision)
    return stamped(record, revision), revision


def differences(before: Values, after: Values) -> dict[tuple[str, str], Any]:
    """Return what has changed; None: it is gone."""
    changed: dict[tuple[str, str], Any] = dict.fromkeys(before.keys() - after.keys())
    changed |= {key: value for key, value in after.items() if before.get(key) != value}
    return changed
