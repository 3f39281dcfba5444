"""tc's words for queueing disciplines, as other forms of the words `key=value` of egress queues.

They are the words behind a discipline's name in a command of tc: `codel target 5ms ecn`, or
`htb rate 5mbit ceil 10mbit`. A queue before them, `q1`, has the place of tc's `classid`. A word is
taken only if egress queues have the same; meanings and defaults are those of tc's manual pages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pacer_controller.cli import render
from pacer_controller.cli.connection import UsageError
from pacer_controller.cli.words import Grammar, Word, read_rate, read_size, read_whole
from pacer_controller.problems import did_you_mean
from pacer_controller.queue_words import WordsError, check_aqm
from pacer_controller.rates import MTU_FRAME_BYTES

_CODEL_TARGET = "5ms"
"""CoDel's target beside an interval that is given (tc-codel(8))."""

_RED_PROBABILITY = "0.02"
"""RED's default (tc-red(8))."""

_PRIO_BANDS = 3
"""The default of `prio` (tc-prio(8))."""

_QUEUE = re.compile(r"q[0-9]{1,2}", re.ASCII)

_TARGET = Word("target", "target", str, "TIME")
_INTERVAL = Word("interval", "interval", str, "TIME")
_ECN = (Word("ecn", "ecn", None, value=True), Word("noecn", "ecn", None, value=False))
_RED = (
    Word("min", "min", read_size, "SIZE"),
    Word("max", "max", read_size, "SIZE"),
    Word("probability", "probability", str, "NUMBER"),
)
_HTB = (
    Word("rate", "rate", read_rate, "RATE"),
    Word("ceil", "ceil", read_rate, "RATE"),
    Word("cburst", "cburst", read_size, "SIZE"),
)
_GRAMMARS = {
    name: Grammar(name, words)
    for name, words in {
        "codel": (_TARGET, _INTERVAL, *_ECN),
        "fq_codel": (_TARGET, _INTERVAL, _ECN[0]),
        "pie": (_TARGET, *_ECN),
        "dualpi2": (_TARGET, _ECN[0]),
        "red": (*_RED, *_ECN),
        "htb": _HTB,
        "drr": (Word("quantum", "quantum", read_size, "SIZE"),),
        "prio": (Word("bands", "bands", read_whole, "N"),),
    }.items()
}

NAMES = (*_GRAMMARS, "rate", "ceil")
"""The words with which tc's begin, for completion."""

_ELSEWHERE = {
    ("", "tbf"): "the rate of a port is that of `pacer port set`, and a queue's is q0 ceil RATE",
    ("", "burst"): "the burst of a queue with a highest rate is q0 cburst SIZE",
    ("htb", "burst"): "that of a minimum rate is fixed at 64 KB; cburst is that of the highest",
    ("htb", "quantum"): "a queue's share is its weight, as in scheduler=drr:4:2",
    ("fq_codel", "noecn"): "fq_codel always marks",
    ("dualpi2", "noecn"): "dualpi2 always marks",
    ("prio", "priomap"): "the priority of a packet is its queue",
}
"""The place of what some words of tc set, by discipline ("": none) and word."""

_DEPTH = "the depth is that of a queue, as in q0.packets=1000 or q0.fifo=64KB"


def translated(words: Sequence[str]) -> list[str]:
    """Return words `key=value` in place of tc's; those that are such words stay as they are.

    Words of tc behind a queue are that queue's, until another queue or a word `key=value`.

    Raises:
        UsageError: an unknown word, a value that cannot be read, or a queue that is missing.

    """
    made: list[str] = []
    weights: dict[int, int] = {}
    for queue, name, given in _groups(words):
        if not name:
            made += given
            continue
        _check_place(queue, name)
        found = _read(name, given)
        if name == "prio":
            made += [f"queues={found.get('bands', _PRIO_BANDS)}", "scheduler=strict"]
        elif name == "htb":
            made += [f"{queue}.{setting}" for setting in _htb(found)]
        elif name == "drr":
            _add_weight(weights, queue, found)
        else:
            made.append(f"{queue}{'.' if queue else ''}aqm={_aqm(name, found)}")
    return made + ([_drr(weights)] if weights else [])


def _groups(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield queue, discipline and the words behind it; "": none, and then a word `key=value`."""
    rest = list(words)
    queue = ""
    while rest:
        word = rest.pop(0)
        if "=" in word:
            queue = ""
            yield "", "", [word]
        elif _QUEUE.fullmatch(word):
            queue = word
            if not rest or "=" in rest[0] or _QUEUE.fullmatch(rest[0]):
                raise UsageError(f"queue: {word} needs words of tc behind it, as in {word} codel")
        else:
            name = "htb" if word in _GRAMMARS["htb"] else word
            if name not in _GRAMMARS:
                raise UsageError(_unknown(word))
            given = [word] if name != word else []
            while rest and not _ends(name, rest[0]):
                given.append(rest.pop(0))
            yield queue, name, given


def _ends(name: str, word: str) -> bool:
    """Whether a word is the first that is not a discipline's."""
    if "=" in word or _QUEUE.fullmatch(word) or word in _GRAMMARS:
        return True
    return name != "htb" and word in _GRAMMARS["htb"]


def _unknown(word: str) -> str:
    if ("", word) in _ELSEWHERE:
        return f"queue: {word!r} is no word here: {_ELSEWHERE['', word]}"
    guess = did_you_mean(word, NAMES) or f"; one of q0, {', '.join(NAMES)}"
    return f"queue: {word!r} is not key=value, such as queues=8, and no word of tc{guess}"


def _check_place(queue: str, name: str) -> None:
    """Raise UsageError for a discipline that lacks its queue, or has one and is of the port."""
    if name in ("htb", "drr") and not queue:
        form = f"q0 {name} {_GRAMMARS[name].usage()[0][0]}"
        raise UsageError(f"queue: {name} needs a queue before it, as in {form}")
    if name == "prio" and queue:
        raise UsageError(
            f"queue: prio orders all queues, so write it before {queue}; a class's prio is a node "
            "strict of the scheduler, as in scheduler=strict{q1+wfq{q2+q0}}"
        )


def _read(name: str, given: Sequence[str]) -> dict[str, Any]:
    """Return the values by word."""
    grammar = _GRAMMARS[name]
    for word in given:
        place = _ELSEWHERE.get((name, word), _DEPTH if word == "limit" else None)
        if place is not None:
            raise UsageError(f"{name}: {word!r} is no word here: {place}")
    return {word: value for word, value in grammar.parse(given).items() if value is not None}


def _aqm(name: str, found: Mapping[str, Any]) -> str:
    """Return active queue management, as `aqm=` has it."""
    parts = [name]
    if name == "red":
        if not {"min", "max"} <= found.keys():
            raise UsageError("red needs min SIZE and max SIZE, as in red min 30KB max 90KB")
        parts += [render.exact_size(found["min"]), render.exact_size(found["max"])]
        parts.append(found.get("probability", _RED_PROBABILITY))
    elif "interval" in found:
        parts += [found.get("target", _CODEL_TARGET), found["interval"]]
    elif "target" in found:
        parts.append(found["target"])
    text = ":".join([*parts, "ecn"] if found.get("ecn") else parts)
    try:
        check_aqm(text)
    except WordsError as error:
        raise UsageError(f"{name}: {error}") from None
    return text


def _htb(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of a queue for a class of HTB, whose `ceil` is `rate` by default."""
    if "rate" in found:
        yield f"min={found['rate']}"
    if "rate" in found or "ceil" in found:
        yield f"rate={found.get('ceil', found.get('rate'))}"
    if "cburst" in found:
        yield f"burst={render.exact_size(found['cburst'])}"


def _add_weight(weights: dict[int, int], queue: str, found: Mapping[str, Any]) -> None:
    """Add the weight of a queue: its quantum in frames; one, the interface's MTU, is default."""
    quantum_bytes = found.get("quantum", MTU_FRAME_BYTES)
    weight, rest = divmod(quantum_bytes, MTU_FRAME_BYTES)
    if rest or not weight:
        raise UsageError(
            f"drr: quantum {quantum_bytes} of {queue} is not a multiple of {MTU_FRAME_BYTES} "
            "bytes, the quantum of weight 1; for other shares give weights: scheduler=drr:4:2"
        )
    if int(queue[1:]) in weights:
        raise UsageError(f"drr: the quantum of {queue} is set twice")
    weights[int(queue[1:])] = weight


def _drr(weights: Mapping[int, int]) -> str:
    for queue in range(max(weights)):
        if queue not in weights:
            raise UsageError(f"drr: q{queue} has no quantum; each queue has one")
    return "scheduler=drr:" + ":".join(str(weights[queue]) for queue in sorted(weights))
