"""Completion in the shell: words of the grammars, and names the controller knows."""

from collections.abc import Callable, Iterable, Sequence

import click
from click.shell_completion import CompletionItem

from pacer_controller.cli.connection import ClientError
from pacer_controller.cli.resources import KINDS, Kind
from pacer_controller.cli.session import Session
from pacer_controller.cli.words import Word

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

MAX_NAMES = 200
"""Most names to complete."""


def _names(context: click.Context, path: str, plural: str, key: str = "name") -> list[str]:
    """Return names of a list; none where the controller does not answer: no noise on a TAB."""
    try:
        body = context.find_root().ensure_object(Session).connection.get(path)
        return [str(view[key]) for view in body[plural]][:MAX_NAMES]
    except (ClientError, KeyError, TypeError):
        return []


def _matching(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def switches(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a switch."""
    return _matching(_names(context, "/v1/switches", "switches"), incomplete)


def _on_switch(context: click.Context, kind: Kind) -> list[str]:
    switch = context.params.get("switch")
    if not switch:
        return []
    key = "port" if kind.name == "port" else "name"
    return _names(context, kind.path(str(switch)), kind.plural, key)


def names_of(kind: Kind) -> Complete:
    """Make a completion of names of a kind on the switch named before."""

    def complete(
        context: click.Context, _: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        given = context.params.get("names") or ()
        known = [name for name in _on_switch(context, kind) if name not in given]
        return _matching(known, incomplete)

    return complete


def words_of(kind: Kind) -> Complete:
    """Make a completion of the words of a grammar, and of their values."""

    def complete(
        context: click.Context, _: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed = list(context.params.get("words") or ())
        word, used = _where(kind, typed)
        if word is not None:
            return _matching(_values(context, word), incomplete)
        return [
            CompletionItem(word.name, help=word.help)
            for word in kind.grammar.words
            if word.name.startswith(incomplete) and word.field not in used
        ]

    return complete


def option_words(known: Sequence[str]) -> Complete:
    """Make a completion of words such as "queues=", also behind a comma."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, begun = incomplete.rpartition(",")
        return [CompletionItem(f"{done}{comma}{w}") for w in known if w.startswith(begun)]

    return complete


def _where(kind: Kind, typed: Sequence[str]) -> tuple[Word | None, set[str]]:
    """Return the word whose value comes next, if one does, and the fields set so far."""
    used: set[str] = set()
    rest = list(typed)
    while rest:
        word = kind.grammar.word(rest.pop(0))
        if word is None:
            continue
        used.add(word.field)
        if word.read is not None:
            if not rest:
                return word, used
            rest.pop(0)
    return None, used


def _values(context: click.Context, word: Word) -> list[str]:
    values: list[str] = []
    for choice in word.choices:
        kind = KINDS.get(choice.strip("<>")) if choice.startswith("<") else None
        values += _on_switch(context, kind) if kind is not None else [choice]
    return values
