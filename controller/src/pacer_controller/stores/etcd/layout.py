"""The layout of the store in etcd: its keys and the format of their values.

    root                            JSON: the generation of each set, as [number, name]
    heads/SET                       the name of the newest write to a set
    shapes/SET                      the name of the newest write to a set that others depend on
    data/SET/GENERATION/KIND/NAME   JSON: a resource, or the settings of a switch
    events/TIME-WRITE+N             JSON: the events of a write, after N others of its revision
    sweep/WRITE                     JSON: keys to be deleted once their writer is done or gone
    epoch, members/, leases/, status/   see `leases`

A set holds the resources of one switch and has the switch's name. The set with the empty name is
the list of switches that requests made.

A resource's revision is the revision in its value, if there is one, else the revision of its key:
a new generation copies unchanged resources, and their values then name their revisions. A set's
revision is the revision of its head or its generation's number, whichever is higher.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pacer_controller.records import Record, index_of, record_of, stamped
from pacer_controller.schemas import stored
from pacer_controller.stores.base import Event

SETTINGS = "switch"
"""The kind of the items in the list of switches."""

Values = dict[tuple[str, str], tuple[Any, int]]
"""Content of a set by kind and name: a record or settings, and its revision."""


@dataclass
class ContentSet:
    """A copy of a set in etcd, as far as the watch and own writes have told of it.

    Attributes:
        head: the revision of the head; 0: there is none.
        shape: the revision of the shape; 0: there is none.
        known: the revision up to which the set is known from this controller's own writes;
            the watch may know all sets up to a newer one.
        generation: its number and name; the first generation has no key in `root`.
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
    """The changes, by set, kind and name; revision 0 stands for the revision of the write."""
    gone: frozenset[str]
    """The sets that are deleted as a whole."""
    events: Sequence[Event]
    bases: Mapping[str, int]
    shaped: Collection[str] = ()
    """The sets in which a change concerns something that other resources depend on."""
    whole: bool = True
    """Whether the write is made as a whole and depends on all of its sets (`base.Store.write`)."""


@dataclass(frozen=True)
class Made:
    """The outcome of a write.

    Attributes:
        revision: the revision of the write.
        heads: the revisions that the heads of its sets had before.
        stale: kind and name of each change that was not made, because another controller has
            changed the resource.

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
    """Return a record or settings with their own revision, or else the generation's."""
    revision = revision or number
    return (value if isinstance(value, Mapping) else stamped(value, revision)), revision


def read(kv: Any) -> Any:
    """Return the value of a key that holds JSON.

    Raises:
        ValueError: it is not JSON.

    """
    # Of bytes, `loads` would find out the encoding, by a dozen calls.
    return json.loads(kv.value.decode())


def decode(kind: str, name: str, kv: Any) -> tuple[Any, int]:
    """Return a record or settings, and the revision.

    Raises:
        ValueError, KeyError: the value is neither a record nor settings.

    """
    made = read(kv)
    revision = int(made.get("revision", kv.mod_revision))
    if kind == SETTINGS:
        return made["settings"], revision
    record: Record = record_of(kind, name, made.get("index"), made["spec"], revision)
    return stamped(record, revision), revision


def differences(before: Values, after: Values) -> dict[tuple[str, str], Any]:
    """Return the changed values by kind and name; None stands for a removed one."""
    changed: dict[tuple[str, str], Any] = dict.fromkeys(before.keys() - after.keys())
    changed |= {key: value for key, value in after.items() if before.get(key) != value}
    return changed
