"""Reads the words of egress queues, `scheduler` and `aqm`, as the switch's port option has them.

The switch reads them again and has the last word: whatever it takes is taken here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pacer_controller.rates import MAX_RATE_BPS, MIN_RATE_BPS, format_rate

NO_AQM = "none"
SWITCH_BUFFER = "switch"
"""The buffer of the switch, in place of the size of a port's own."""

DEPTH_MOST_BYTES = 2**40
"""The largest depth of a queue."""
DEPTH_MOST_PACKETS = 2**32

SCHEDULERS = "strict, drr:4:2:1, wfq:4:2:1 or a tree such as strict{q2+wfq{q1:4+q0}}"
AQMS = (
    "none, codel[:TARGET[:INTERVAL]], fq_codel[:TARGET[:INTERVAL]], pie[:TARGET], "
    "dualpi2[:TARGET], red:MIN:MAX:P or wred:MIN:MAX:P/MIN:MAX:P/MIN:MAX:P, each with :ecn or "
    "without"
)

WEIGHT_MAX = 65_536
DEPTH_MAX = 8
NODES_MAX = CHILDREN_MAX = 64
_QUEUE_MAX = 255
_AQM_TIME_MAX_NS = 10_000_000_000
_DUALPI2_TIME_MIN_NS = 1_000_000
_THRESHOLD_MAX_BYTES = 2**32 - 1
_PROBABILITY_MIN = 1e-6
_CODEL_TIMES = ["5ms", "100ms"]
"""Target and interval (RFC 8289), where they are not given."""

_DISCIPLINES = ("strict", "drr", "wfq")
_PACED = "paced"
_EACH_ONCE = "each queue of the port is there once"
_WORD = re.compile(r"[^{}+:]*")
_NUMBER = re.compile(r"\+?[0-9]{1,20}", re.ASCII)
_SCALED = re.compile(r"([0-9]{0,20})(?:\.([0-9]{0,20}))?([a-z]*)", re.ASCII)

_RATES = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_SIZES = {"": 1, "b": 1} | dict.fromkeys(("kb", "kib"), 2**10)
_SIZES |= dict.fromkeys(("mb", "mib"), 2**20) | dict.fromkeys(("gb", "gib"), 2**30)
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


class WordsError(ValueError):
    """Words that the switch would refuse; the text says which and why."""


def _scaled(text: str, units: Mapping[str, int], expected: str) -> int:
    """Return a decimal number with a unit, exactly."""
    found = _SCALED.fullmatch(text.strip().lower())
    if found is not None and (found[1] or found[2]) and found[3] in units:
        value = Fraction(f"{found[1] or 0}.{found[2] or 0}") * units[found[3]]
        if value.denominator == 1 and value < 2**64:
            return int(value)
    raise WordsError(f"{text!r} is not {expected}")


def _rate(text: str, line_rate_bps: int | None) -> int:
    rate_bps = _scaled(text, _RATES, "a rate such as 500mbit")
    if not MIN_RATE_BPS <= rate_bps <= MAX_RATE_BPS:
        between = f"{format_rate(MIN_RATE_BPS)} and {format_rate(MAX_RATE_BPS)}"
        raise WordsError(f"rate {text} is not between {between}")
    if line_rate_bps is not None and rate_bps > line_rate_bps:
        raise WordsError(f"rate {text} is above the line rate, {format_rate(line_rate_bps)}")
    return rate_bps


def _size(text: str) -> int:
    return _scaled(text, _SIZES, "a size such as 64KB")


def _time_ns(text: str, least_ns: int = 1) -> int:
    time_ns = _scaled(text, _TIMES, "a time such as 5ms")
    if not least_ns <= time_ns <= _AQM_TIME_MAX_NS:
        least = "1 ns" if least_ns == 1 else "1 ms"
        raise WordsError(f"{text!r} is not a time of {least} to 10 s")
    return time_ns


# ---- active queue management ----


def check_aqm(text: str) -> None:
    """Raise WordsError unless a text is an `aqm`."""
    if text == NO_AQM:
        return
    name, _, given = text.removesuffix(":ecn").partition(":")
    parameters = given.split(":") if given else []
    if name in ("codel", "fq_codel"):
        if len(parameters) > 2:
            raise WordsError(f"{text!r}: at most TARGET and INTERVAL expected")
        target_ns, interval_ns = map(_time_ns, (parameters + _CODEL_TIMES[len(parameters) :]))
        if target_ns > interval_ns:
            raise WordsError(f"{text!r}: the target is above the interval of {interval_ns} ns")
    elif name in ("pie", "dualpi2"):
        if len(parameters) > 1:
            raise WordsError(f"{text!r}: at most TARGET expected")
        for one in parameters:
            _time_ns(one, _DUALPI2_TIME_MIN_NS if name == "dualpi2" else 1)
    elif name in ("red", "wred"):
        profiles = given.split("/")
        if len(profiles) not in ((1,) if name == "red" else (1, 3)):
            raise WordsError(f"{text!r}: red has one profile, wred one or three")
        for profile in profiles:
            _check_profile(profile)
    else:
        raise WordsError(f"{text!r} is no active queue management")


def _check_profile(text: str) -> None:
    parts = text.split(":")
    if len(parts) != 3:
        raise WordsError(f"{text!r} is not MIN:MAX:P, such as 30KB:90KB:0.1")
    least, most = map(_size, parts[:2])
    if least >= most:
        raise WordsError(f"{text!r}: MIN is not below MAX")
    if most > _THRESHOLD_MAX_BYTES:
        raise WordsError(f"{text!r}: MAX is above {_THRESHOLD_MAX_BYTES} bytes")
    try:
        share = float(parts[2].replace("_", "?"))
    except ValueError:
        share = -1.0
    if not _PROBABILITY_MIN <= share <= 1:
        raise WordsError(f"{parts[2]!r} is not a probability from 0.000001 to 1")


# ---- schedulers ----


@dataclass
class _Node:
    """A node of a tree, with the minimum rates of all below it.

    Attributes:
        name: its discipline.
        minima_bps: the sum of its children's minimum rates.
        rate_bps: its highest rate, if it has one.
        min_bps: its own minimum rate, if it has one.

    """

    name: str
    minima_bps: int = 0
    rate_bps: int | None = None
    min_bps: int | None = None


@dataclass
class _Tree:
    """A tree, and the place that has been reached in it.

    Attributes:
        text: the tree's.
        line_rate_bps: that of the port; None: not known.
        minima_bps: the minimum rates of single queues.
        at: the place.
        seen: the queues so far.
        has_paced: whether held packets have a place in it so far.
        nodes: how many there are so far.

    """

    text: str
    line_rate_bps: int | None
    minima_bps: Mapping[int, int]
    at: int = 0
    seen: list[int] = field(default_factory=list)
    has_paced: bool = False
    nodes: int = 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def take(self, expected: str) -> bool:
        """Take a character if it is the next."""
        found = self.rest.startswith(expected)
        self.at += found
        return found

    def word(self) -> str:
        """Take the characters until one that has a meaning of its own."""
        found = _WORD.match(self.text, self.at)
        word = found[0] if found else ""
        self.at += len(word)
        return word

    def settings(self) -> Iterator[str]:
        """Take the settings that follow, each after a colon."""
        seen: set[str] = set()
        while self.take(":"):
            setting = self.word()
            if not setting:
                raise WordsError(f"nothing follows the ':' before {self.rest!r}")
            key, equals, _ = setting.partition("=")
            if equals and key in seen:
                raise WordsError(f"{setting!r}: {key} is given twice")
            if equals:
                seen.add(key)
            yield setting

    def root(self) -> int:
        """Take the whole tree; return the minimum rates of all that is below the root."""
        root = self.node(self.word(), 1)
        for setting in self.settings():
            if not self.set_rate(root, setting):
                raise WordsError(f"{setting!r}: the root has a rate=, no weight")
        self.close(root)
        if self.rest:
            raise WordsError(f"{self.rest!r} follows the end of the tree")
        return root.minima_bps

    def node(self, name: str, depth: int) -> _Node:
        """Take a node whose name has been taken."""
        if name not in _DISCIPLINES:
            raise WordsError(f"{name!r} is not strict, drr, wfq or a queue such as q0, or {_PACED}")
        self.nodes += 1
        if depth > DEPTH_MAX:
            raise WordsError(f"more than {DEPTH_MAX} levels of nodes")
        if self.nodes > NODES_MAX:
            raise WordsError(f"more than {NODES_MAX} nodes")
        if not self.take("{"):
            raise WordsError(f"{name} needs children, as in {name}{{q1+q0}}")
        node = _Node(name)
        for _ in range(CHILDREN_MAX):
            node.minima_bps += self.child(name, depth)
            if self.take("}"):
                return node
            if not self.take("+"):
                at = f"'+' or '}}' is expected in place of {self.rest!r}"
                raise WordsError(at if self.rest else f"{name} has no '}}'")
        raise WordsError(f"{name} has more than {CHILDREN_MAX} children")

    def child(self, above: str, depth: int) -> int:
        """Take a child of a node; return its minimum rate."""
        word = self.word()
        number = word.removeprefix("q")
        is_queue = word.startswith("q") and _NUMBER.fullmatch(number) is not None
        node: _Node | None = None
        if is_queue and int(number) <= _QUEUE_MAX:
            if number != str(int(number)):
                raise WordsError(f"{word!r}: write q{int(number)}")
            self.seen.append(int(number))
        elif word == _PACED:
            if self.has_paced:
                raise WordsError(f"{_PACED} is in the tree twice")
            self.has_paced = True
        else:
            node = self.node(word, depth + 1)
        weights = 0
        for setting in self.settings():
            if node is not None and self.set_rate(node, setting):
                continue
            if node is None and "=" in setting:
                of = "queue" if word != _PACED else "classes"
                raise WordsError(f"{setting!r} of {word} is a setting of the {of}, not of the tree")
            if above == "strict":
                raise WordsError(f"{setting!r}: a child of strict has no weight")
            _check_weight(setting)
            weights += 1
            if weights > 1:
                raise WordsError(f"{setting!r}: {word} has two weights")
        if node is not None:
            return self.close(node)
        return 0 if word == _PACED else self.minima_bps.get(self.seen[-1], 0)

    def set_rate(self, node: _Node, setting: str) -> bool:
        """Take a setting of a node; return False if it is a weight."""
        name, equals, value = setting.partition("=")
        if not equals:
            return False
        if name == "rate":
            node.rate_bps = _rate(value, self.line_rate_bps)
        elif name == "min":
            node.min_bps = _rate(value, self.line_rate_bps)
        elif name != "burst":
            raise WordsError(f"{setting!r} is not rate=, burst= or min=")
        elif node.rate_bps is None:
            raise WordsError(f"{setting!r} needs a rate before it")
        else:
            _size(value)
        return True

    def close(self, node: _Node) -> int:
        """Check a node's rates; return its minimum rate."""
        min_bps = node.minima_bps if node.min_bps is None else node.min_bps
        if min_bps < node.minima_bps:
            of_all = format_rate(node.minima_bps)
            raise WordsError(f"min={format_rate(min_bps)} is below its children's {of_all}")
        if node.rate_bps is not None and min_bps > node.rate_bps:
            given = f"{format_rate(min_bps)} is above its rate={format_rate(node.rate_bps)}"
            raise WordsError(f"{node.name}: the minimum rate {given}")
        return min_bps


def _check_weight(text: str) -> None:
    if _NUMBER.fullmatch(text) is None:
        raise WordsError(f"weight {text!r} is no number")
    if not 1 <= int(text) <= WEIGHT_MAX:
        raise WordsError(f"weight {text} is not between 1 and {WEIGHT_MAX}")


def check_scheduler(
    text: str, queues: int, line_rate_bps: int | None, minima_bps: Mapping[int, int]
) -> None:
    """Raise WordsError unless a text is a scheduler of so many queues.

    `minima_bps` are the minimum rates of single queues.
    """
    minimum_bps = sum(minima_bps.values())
    if "{" in text or "}" in text:
        tree = _Tree(text, line_rate_bps, minima_bps)
        minimum_bps = tree.root()
        _check_leaves(tree.seen, queues)
    else:
        _check_flat(text, queues)
    if line_rate_bps is not None and minimum_bps > line_rate_bps:
        both = f"{format_rate(minimum_bps)}, are above the line rate, {format_rate(line_rate_bps)}"
        raise WordsError(f"all minimum rates together, {both}")


def _check_flat(text: str, queues: int) -> None:
    """Check a scheduler that is no tree."""
    name, colon, given = text.partition(":")
    if name not in _DISCIPLINES or (name == "strict" and colon):
        raise WordsError(f"{text!r} is no scheduler")
    if name == "strict":
        return
    if not colon:
        raise WordsError(f"{name} needs weights, as in {name}:4:2:1")
    weights = given.split(":")
    for weight in weights:
        _check_weight(weight)
    if len(weights) != queues:
        raise WordsError(f"{len(weights)} weights for {queues} queues, one for each expected")


def _check_leaves(seen: list[int], queues: int) -> None:
    """Check that each queue of a port is a leaf once."""
    known: set[int] = set()
    for queue in seen:
        if queue >= queues:
            raise WordsError(f"q{queue}: the port has queues 0 to {queues - 1}")
        if queue in known:
            raise WordsError(f"q{queue} is in the tree twice; {_EACH_ONCE}")
        known.add(queue)
    for queue in range(queues):
        if queue not in known:
            raise WordsError(f"q{queue} is not in the tree; {_EACH_ONCE}")
