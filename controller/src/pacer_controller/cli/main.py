"""The command line of `pacer`."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import get_completion_class

from pacer_controller import __version__
from pacer_controller.cli import burst, complete, queues, render, statefile, top, trace
from pacer_controller.cli.connection import (
    DEFAULT_URL,
    EXIT_USAGE,
    ClientError,
    RefusedError,
    UsageError,
    path,
)
from pacer_controller.cli.resources import KINDS, PORT_DEFAULTS, Kind, body_of, flow_name
from pacer_controller.cli.session import Session
from pacer_controller.problems import did_you_mean, meant_of

_EXIT_INTERRUPTED = 130

_NOW_S = 2.0
"""A measured rate counts as the rate of now up to this age."""

_F = TypeVar("_F", bound=Callable[..., Any])

_EPILOG = """\b
  pacer class add s1 video rate 500mbit
  pacer flow add s1 match tcp dport 80 class video
  pacer class set s1 video rate 300mbit
  pacer show
  pacer top

Commands may be shortened as long as they are unambiguous: pacer cl sh s1."""

_ALIASES = {
    "list": "show", "ls": "show", "lst": "show", "get": "show",
    "change": "set", "delete": "del", "remove": "del", "rm": "del",
    "classes": "class", "flows": "flow", "ports": "port", "meters": "meter", "queues": "queue",
    "switches": "switch",
}  # fmt: skip


class _WordsCommand(click.Command):
    """A command with words, of which "-3mbit" is one: its grammar reports the error."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; no option begins with a digit."""
        ctx.ignore_unknown_options = any(re.match(r"-[.0-9]", arg) for arg in args)
        return super().parse_args(ctx, args)


class _Group(click.Group):
    """A group whose commands may be shortened, as those of `ip` and `tc`; errors have a guess."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, another name of it, or its beginning."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        alias = _ALIASES.get(cmd_name, "")
        if alias in self.commands:
            return self.commands[alias]
        begun = [name for name in self.commands if name.startswith(cmd_name)]
        if len(begun) == 1:
            return self.commands[begun[0]]
        if begun:
            ctx.fail(f"{cmd_name!r} may be {', '.join(begun)}")
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which ones there are."""
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            guess = did_you_mean(args[0], [*self.commands, *_ALIASES])
            known = f"; one of {', '.join(self.commands)}"
            ctx.fail(f"no command {args[0]!r}{guess or known}")
        return args[0] if command is None else command.name, command, args[1:]


def _whole_run(flag: str, name: str, **more: Any) -> Callable[[_F], _F]:
    """Make an option of the whole run, which every command has; the last one given counts."""

    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.find_root().ensure_object(Session), name, value)

    return click.option(flag, name, expose_value=False, callback=callback, **more)


_WHOLE_RUN = (
    _whole_run("--json", "as_json", is_flag=True, help="Print JSON."),
    _whole_run(
        *("--url", "url"),
        metavar="URL",
        help=f"Where the controller is (PACER_URL; default {DEFAULT_URL}).",
    ),
    _whole_run("--ca", "authority", metavar="FILE", help="Certificates to trust (PACER_CA)."),
)


def _common(command: _F) -> _F:
    """Add the options that every command has."""
    for option in _WHOLE_RUN:
        command = option(command)
    return command


@click.group(cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pacer")
@_common
@click.pass_context
def cli(context: click.Context) -> None:
    """Set per-flow rates on pacing switches, and watch them.

    A bearer token is taken from PACER_TOKEN.
    """
    context.call_on_close(context.ensure_object(Session).close)


def _named(context: click.Context, _: click.Parameter, value: Any) -> Any:
    """Refuse an empty name, which is the result of an unset variable of a shell."""
    if not context.resilient_parsing and "" in (value if isinstance(value, tuple) else (value,)):
        raise UsageError("the name is empty")
    return value


def _argument(name: str, completion: complete.Complete, **more: Any) -> Callable[..., Any]:
    return click.argument(name, shell_complete=completion, callback=_named, **more)


_switch_option = click.option(
    "--switch",
    metavar="SWITCH",
    shell_complete=complete.switches,
    callback=_named,
    help="Only that switch's state.",
)


# ---- one kind of resource ------------------------------------------------------------------


def _words_epilog(kind: Kind) -> str:
    usage = kind.grammar.usage()
    width = max(len(word) for word, _ in usage)
    lines = [f"  {word:<{width}}  {text}" for word, text in usage]
    return "\b\nWords, in any order:\n" + "\n".join(lines)


def _tell(session: Session, kind: Kind, switch: str, view: dict[str, Any]) -> None:
    if session.as_json:
        session.print_json(view)
        return
    render.console().print(render.one_line(kind.name, view))
    if kind.name != "switch":
        session.say_pending(switch, view)


def _tell_gone(session: Session, fields: dict[str, Any], gone: dict[str, Any]) -> None:
    """Say which settings of a class another mode took away."""
    if session.as_json:
        return
    if fields.get("mode") is None:
        if gone.get("mode") == "unpaced":
            session.say("pacer: the class was unpaced; with a rate it is static")
        return
    words = render.pace({name: value for name, value in gone.items() if name not in fields})
    if words:
        session.say(f"pacer: mode {fields['mode']} ignores, so removed: {words}")


def _split_name(kind: Kind, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the name in front of the words of a flow, where there is one."""
    if len(words) > 1 and words[1] in kind.grammar.noise:
        return words[0], list(words[1:])
    if words and words[0] not in kind.grammar:
        guess = did_you_mean(words[0], [n for word in kind.grammar.words for n in word.names])
        # A name is followed by a word; a mistyped word is followed by its value.
        if len(words) == 1 or words[1] in kind.grammar:
            return words[0], list(words[1:])
        raise UsageError(f"flow: unknown word {words[0]!r}{guess}")
    return None, list(words)


def _named_fields(kind: Kind, typed: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of a flow to add."""
    name, words = _split_name(kind, typed)
    fields = kind.grammar.parse(words)
    given = fields.pop("name", None)
    name = name if given is None else given
    if not any(field.startswith("match.") for field in fields):
        raise UsageError(
            "flow: no match given; such as: match tcp dport 80, or: match src 10.0.0.0/8"
        )
    if name == "":
        raise UsageError("the name is empty")
    if name is None:
        match = {f.removeprefix("match."): v for f, v in fields.items() if f.startswith("match.")}
        name = flow_name(match, fields.get("priority"))
    return name, fields


def _parsed(session: Session, kind: Kind, switch: str, words: Sequence[str]) -> dict[str, Any]:
    """Read the words; where they are wrong because the switch was left out, say that instead."""
    try:
        return kind.grammar.parse(words)
    except UsageError as error:
        try:
            known = [view["name"] for view in session.switches()]
        except ClientError:
            raise error from None
        if kind.name == "switch" or switch in known:
            raise
        raise UsageError(f"no switch {switch!r}{meant_of(switch, known)}") from None


def _delete_all(session: Session, kind: Kind, switch: str, names: Sequence[str]) -> None:
    """Delete all of them or, where one cannot be deleted, none."""
    if kind.name == "port":
        _reset_ports(session, kind, switch, names)
    elif kind.name == "switch":
        views = [session.connection.get(path("switches", name)) for name in names]
        # One of the configuration is refused: it goes first, before anything is deleted.
        for view in sorted(views, key=lambda view: not view.get("configured")):
            session.delete(kind, view["name"], view["name"])
    elif len(names) == 1:
        session.delete(kind, switch, names[0])
    else:
        session.delete_together(kind, switch, names)
    if session.as_json:
        session.print_json({"deleted": list(names)})
    else:
        done = "reset to defaults" if kind.name == "port" else "deleted"
        print(f"{kind.name} {', '.join(names)}: {done}")


def _reset_ports(session: Session, kind: Kind, switch: str, ports: Sequence[str]) -> None:
    """Give the settings of ports their defaults, and stop managing them."""
    asked = {port: session.connection.get(kind.path(switch, port)).get("desired") for port in ports}
    for port, desired in asked.items():
        if not desired:
            raise UsageError(f"port {port} of {switch}: nothing is set")
    # At Open vSwitch the DELETE itself removes the settings.
    own = session.connection.get(path("switches", switch)).get("kind") == "p4runtime"
    for port, desired in asked.items():
        defaults = {name: value for name, value in PORT_DEFAULTS.items() if name in desired}
        view = session.write(kind, switch, port, defaults) if own else {}
        session.delete(kind, switch, port)
        if view.get("state") == "pending":
            session.say(f"pacer: {switch} is not connected: port {port} keeps its settings")


def _add_command(kind: Kind, replace: bool) -> click.Command:
    """Make `add`, which needs a new name, or `replace`, which takes any."""

    def run(session: Session, switch: str, words: tuple[str, ...], name: str | None = None) -> None:
        if kind.name == "flow":
            name, fields = _named_fields(kind, words)
        else:
            fields = _parsed(session, kind, switch, words)
        body = body_of(kind, fields, {"match": {}} if kind.name == "flow" else {})
        write = session.write if replace else session.create
        view = write(kind, switch, switch if name is None else name, body)
        _tell(session, kind, switch, view)

    if kind.name in ("class", "meter"):
        run = _argument("name", complete.names_of(kind))(run)
    verb = "Create or replace" if replace else "Add"
    return _command(kind, "replace" if replace else "add", f"{verb} a {kind.name}.", run)


def _set_command(kind: Kind) -> click.Command:
    def run(session: Session, switch: str, words: tuple[str, ...], name: str | None = None) -> None:
        fields = _parsed(session, kind, switch, words)
        if not fields:
            known = ", ".join(word.name for word in kind.grammar.words)
            raise UsageError(f"{kind.name}: nothing to set; words: {known}")
        fields.pop("name", None)
        name = switch if name is None else name
        view, headers = session.read(kind, switch, name)
        before = kind.spec(view)
        body = body_of(kind, fields, before)
        _tell(session, kind, switch, session.write(kind, switch, name, body, headers))
        if kind.name == "class":
            _tell_gone(session, fields, {n: v for n, v in before.items() if n not in body})

    if kind.name != "switch":
        run = _argument("name", complete.names_of(kind))(run)
    doc = f"Change the named settings of a {kind.name}; the others stay."
    return _command(kind, "set", doc, run)


def _command(kind: Kind, name: str, doc: str, run: Callable[..., None]) -> click.Command:
    """Make a command of the form SWITCH [NAME] WORDS..."""
    run = _argument("switch", complete.switches)(run)
    # Decorators are in reverse order: the last parameter is declared first.
    parameters = getattr(run, "__click_params__", [])
    words = click.Argument(["words"], nargs=-1, shell_complete=complete.words_of(kind))
    parameters.insert(0, words)
    made = click.command(name, cls=_WordsCommand, help=doc, epilog=_words_epilog(kind))(
        _common(click.make_pass_decorator(Session)(run))
    )
    if kind.name == "flow" and name != "set":
        made.options_metavar = "[OPTIONS]"
        for parameter in made.params:
            if parameter.name == "words":
                parameter.metavar = "[NAME] match WORDS..."
    return made


_DEL_HELP = {
    "port": "Give the settings of ports their defaults, and stop managing them.",
    "switch": "Forget switches and all their resources; they keep forwarding.",
}


def _del_command(kind: Kind) -> click.Command:
    def run(session: Session, names: tuple[str, ...], switch: str = "") -> None:
        _delete_all(session, kind, switch, names)

    # The argument that is added last comes first.
    known = complete.switches if kind.name == "switch" else complete.names_of(kind)
    run = _argument("names", known, nargs=-1, required=True)(run)
    if kind.name != "switch":
        run = _argument("switch", complete.switches)(run)
    return click.command("del", help=_DEL_HELP.get(kind.name, f"Delete {kind.plural}."))(
        _common(click.make_pass_decorator(Session)(run))
    )


def _chosen(session: Session, switch: str | None) -> list[str]:
    return [switch] if switch is not None else [view["name"] for view in session.switches()]


def _show_command(kind: Kind) -> click.Command:
    @click.command("show", help=f"Show {kind.plural} of all switches, of one switch, or by name.")
    @_argument("switch", complete.switches, required=False)
    @_argument("names", complete.names_of(kind), nargs=-1)
    @click.option("-s", "--stats", is_flag=True, help="Show what was measured.")
    @click.option("--prefix", metavar="TEXT", help="Only names with this prefix.")
    @click.option(
        "--state", type=click.Choice(["applied", "pending", "failed"]), help="Only in this state."
    )
    @_common
    @click.pass_obj
    def show(
        session: Session,
        switch: str | None,
        names: tuple[str, ...],
        stats: bool,
        prefix: str | None,
        state: str | None,
    ) -> None:
        if stats:
            _show_statistics(session, kind, _chosen(session, switch), names)
            return
        if names and switch is not None:
            views = [session.connection.get(kind.path(switch, name)) for name in names]
            groups = [(switch, views)]
        else:
            query = {n: v for n, v in (("prefix", prefix), ("state", state)) if v is not None}
            groups = [
                (name, session.resources(kind, name, query)) for name in _chosen(session, switch)
            ]
        _print_groups(session, kind, groups, one=len(names) == 1)

    @click.command("show", help="Show switches.")
    @_argument("names", complete.switches, nargs=-1)
    @_common
    @click.pass_obj
    def show_switches(session: Session, names: tuple[str, ...]) -> None:
        views = [session.connection.get(path("switches", name)) for name in names]
        groups = [("", views if names else session.switches())]
        _print_groups(session, kind, groups, one=len(names) == 1)

    return show_switches if kind.name == "switch" else show


def _print_groups(
    session: Session,
    kind: Kind,
    groups: Sequence[tuple[str, Sequence[dict[str, Any]]]],
    *,
    one: bool,
) -> None:
    if not session.as_json:
        render.console().print(render.listing(kind.name, groups))
    elif one:
        session.print_json(groups[0][1][0])
    elif kind.name == "switch":
        session.print_json({kind.plural: groups[0][1]})
    else:
        session.print_json({switch: {kind.plural: views} for switch, views in groups})


def _show_statistics(
    session: Session, kind: Kind, switches: Sequence[str], names: Sequence[str]
) -> None:
    part = kind.plural
    if part not in render.STATISTICS:
        raise UsageError(f"there are no statistics of {kind.plural}")
    groups = []
    for switch in switches:
        measured = session.connection.get(path("switches", switch, "stats"))
        if kind.name != "flow" and not 0 < (measured.get("interval_s") or 0) <= _NOW_S:
            # Rates are over the time since the last reading: the first, or one long ago, says
            # nothing of now.
            time.sleep(_NOW_S / 2)
            measured = session.connection.get(path("switches", switch, "stats"))
        if names:
            key = "port" if kind.name == "port" else "name"
            measured[part] = [row for row in measured[part] if str(row.get(key)) in names]
        groups.append((switch, measured))
        if measured.get("state") != "connected":
            session.say(f"pacer: {switch} is {render.state(measured)}")
        if note := render.oversize(measured):
            session.say(f"pacer: {note}")
    if session.as_json:
        session.print_json({switch: {part: measured[part]} for switch, measured in groups})
    else:
        render.console().print(render.statistics(part, groups))


def _add_kinds() -> None:
    for kind in KINDS.values():
        group = _Group(kind.name, help=kind.help)
        if kind.name != "port":
            group.add_command(_add_command(kind, replace=False))
        group.add_command(_set_command(kind))
        if kind.name not in ("port", "switch"):
            group.add_command(_add_command(kind, replace=True))
        delete = _del_command(kind)
        group.add_command(delete)
        if kind.name == "port":
            group.add_command(delete, "reset")
        group.add_command(_show_command(kind))
        cli.add_command(group)


_add_kinds()


# ---- everything at once --------------------------------------------------------------------


@cli.command()
@_argument("switch", complete.switches, required=False)
@_common
@click.pass_obj
def show(session: Session, switch: str | None) -> None:
    """Show switches and everything on them."""
    views = session.switches() if switch is None else [
        session.connection.get(path("switches", switch))
    ]  # fmt: skip
    console = render.console()
    parts_of = {}
    for view in views:
        parts: dict[str, list[dict[str, Any]]] = {}
        for kind in (KINDS["class"], KINDS["flow"], KINDS["meter"]):
            try:
                parts[kind.plural] = session.resources(kind, view["name"])
            except RefusedError as error:
                if error.status != 404:
                    raise
                parts[kind.plural] = []
        parts_of[view["name"]] = {"switch": view, **parts}
        if not session.as_json:
            console.print(render.switch_tree(view, parts))
    if session.as_json:
        session.print_json({"switches": parts_of})
    elif not views:
        session.say("no switches yet; add one: pacer switch add s1 address 127.0.0.1:9559")


@cli.command(name="top")
@_argument("switch", complete.switches, required=False)
@click.option(
    *("-i", "--interval"),
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two rounds.",
)
@click.option("-n", "--times", type=click.IntRange(1), help="Number of rounds to show.")
@_common
@click.pass_obj
def top_(session: Session, switch: str | None, interval: float, times: int | None) -> None:
    """Show rates, drops and queues of every class, and egress queues, live; q quits.

    When output is not a terminal, samples are printed one after the other; --json: one a line.
    """
    top.run(session, switch, round(interval * 1000), times)


cli.add_command(_common(burst.burst))
cli.add_command(queues.queue)
for _command in queues.queue.commands.values():
    _common(_command)
cli.add_command(_common(trace.trace))


@cli.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@_switch_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask before something is deleted.")
@_common
@click.pass_obj
def apply(session: Session, file: str, dry_run: bool, switch: str | None, yes: bool) -> None:
    """Replace the desired state with FILE (YAML or JSON; - is standard input).

    All or nothing. Anything that is not in the file is deleted. `pacer export` writes such a file.
    """
    state = statefile.load(file)
    if switch is None and statefile.is_of_one_switch(state):
        raise UsageError(f"{file} is the state of one switch: say which with --switch")
    if switch is not None and "switches" in state:
        raise UsageError(f"{file}: the file names its switches; leave --switch away")
    target = "/v1/state" if switch is None else path("switches", switch, "state")
    asks = not (yes or dry_run or session.as_json) and sys.stdin.isatty() and file != "-"
    if dry_run or asks:
        answer = _put_state(session, target, state, dry_run=True)
        if dry_run:
            _tell_changes(session, answer)
            return
        if answer["summary"]["delete"]:
            render.console(stderr=True).print(render.changes(answer))
            click.confirm("Continue?", abort=True, err=True)
    _tell_changes(session, _put_state(session, target, state, dry_run=False))


def _put_state(session: Session, target: str, state: Any, *, dry_run: bool) -> dict[str, Any]:
    query = {"dry_run": "true"} if dry_run else None
    with render.console(stderr=True).status("the controller checks and writes"):
        response = session.connection.request("PUT", target, state, query=query)
    return dict(response.json())


def _tell_changes(session: Session, answer: dict[str, Any]) -> None:
    if session.as_json:
        session.print_json(answer)
        return
    render.console().print(render.changes(answer))
    for switch, state in (answer.get("switches") or {}).items():
        if state != "applied":
            session.say(f"pacer: {switch}: {state}")


@cli.command()
@_switch_option
@_common
@click.pass_obj
def export(session: Session, switch: str | None) -> None:
    """Print the whole desired state, in the form that `pacer apply` takes."""
    target = "/v1/state" if switch is None else path("switches", switch, "state")
    state = session.connection.get(target)
    if session.as_json:
        session.print_json(state)
    else:
        click.echo(statefile.dump(state), nl=False)


@cli.command()
@_argument("switch", complete.switches, required=False)
@click.option(
    *("-n", "--last"),
    type=click.IntRange(1, 10000),
    default=20,
    show_default=True,
    help="Number of past events to show.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep showing new events.")
@click.option(
    "--kind", metavar="KIND", help="Only events of this kind: change, drift, switch-state, ..."
)
@_common
@click.pass_obj
def events(session: Session, switch: str | None, last: int, follow: bool, kind: str | None) -> None:
    """Show events: changes, drift, switches that connected and disconnected."""
    query: dict[str, str | int] = {"newest": "true", "limit": last}
    filters = {n: v for n, v in (("switch", switch), ("kind", kind)) if v is not None}
    found = session.connection.get("/v1/events", {**query, **filters})["events"]
    if session.as_json and not follow:
        session.print_json({"events": found})
        return
    for view in found:
        _print_event(session, view)
    if follow:
        after = {"after": found[-1]["id"]} if found else {}
        with session.connection.stream("/v1/events/stream", {**filters, **after}) as stream:
            for _, view in stream:
                _print_event(session, view)


def _print_event(session: Session, view: dict[str, Any]) -> None:
    if session.as_json:
        session.print_line(view)
    else:
        render.console().print(render.event(view))
    sys.stdout.flush()


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(pacer completion bash)"."""
    made = get_completion_class(shell)
    if made is None:
        raise UsageError(f"no completion for {shell}")
    click.echo(made(cli, {}, "pacer", "_PACER_COMPLETE").source())


# ---- the end of it -------------------------------------------------------------------------


_WORD_OF_FIELD = {
    word.field: word.name
    for kind in KINDS.values()
    for word in kind.grammar.words
    if word.read is not None
}
"""The word typed for a field of the API, for errors."""

_FIELDS = re.compile(r"\b(" + "|".join(sorted(_WORD_OF_FIELD, key=len, reverse=True)) + r")\b")


def _in_words(text: str) -> str:
    """Replace the names of fields by the words typed; a field that is no word has an underscore."""
    return _FIELDS.sub(
        lambda found: _WORD_OF_FIELD[found[0]] if "_" in found[0] else found[0], text
    )


def _report(error: ClientError, as_json: bool) -> None:
    """Print an error: for people each field with the values allowed, for programs as it came."""
    if as_json:
        print(json.dumps(error.problem, indent=2), file=sys.stderr)
        return
    fields = [f for f in error.problem.get("errors") or () if isinstance(f, dict)]
    text = _in_words(str(error.problem.get("detail") or error))
    lines = []
    for field in fields:
        name = str(field.get("field"))
        word = _WORD_OF_FIELD.get(name, name)
        text = text.replace(f" {name}: ", f" {word}: ")
        lines.append(f"  {word}: want {_in_words(str(field.get('expected')))}")
    print("\n".join((f"pacer: {text}", *lines)), file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 1 refused, 2 not understood, 3 no controller."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in typed
    try:
        cli.main(typed, prog_name="pacer", standalone_mode=False)
    except ClientError as error:
        _report(error, as_json)
        return error.exit_status
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_USAGE
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            # The dashes alone do not make two options alike.
            typed_name = error.option_name.strip("-")
            close = (name for name in error.possibilities if did_you_mean(typed_name, [name[2:]]))
            error = click.NoSuchOption(error.option_name, None, list(close), error.ctx)
        if as_json:
            _report(UsageError(error.format_message()), as_json)
        else:
            print(f"pacer: {error.format_message()}", file=sys.stderr)
            if error.ctx is not None:
                print(f"try: {error.ctx.command_path} --help", file=sys.stderr)
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python must not fail on it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0
