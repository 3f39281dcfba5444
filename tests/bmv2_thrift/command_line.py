#!/usr/bin/env python3
"""The commands of BMv2's command line on pacing_switch and on stock simple_switch, compared.

    command_line.py [--simple-switch PATH] [--cli PATH] [--only NAME] [--random N] [--seed S]
    command_line.py --record      rewrites differences.json; `subject` of a new one is empty

`sessions` has the commands, a file for each switch that is started: the program, with options of
the target after it, then a command a line. `send PORT PORTS FRAME` is one of ours: the frame, in
hexadecimal, comes in at the port; the answer is the frame that leaves each of PORTS (`1+2`, or `-`
for none). A last session has every command that the command line lists, without arguments, with
one and with nine. Both switches get the same options, ports and commands, one after another, and
each answer is compared.

differences.json has the answers that may differ. Each names as `subject` a row of the table in
docs/thrift.md, which has the reason. A difference that is not listed is an error, and so is a
listed one that does not occur.

--random N adds sessions of N random commands of each kind for each program. Nothing is listed for
these: each difference is printed with the commands before it.

Exit status: 0 as listed; 1 not; 2 wrong usage. Without simple_switch and simple_switch_CLI it says
"not run", and 0.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
for _folder in ("conformance", "virtual", "cli"):
    sys.path.insert(0, str(HERE.parent / _folder))

from namespaces import enter  # noqa: E402
from random_commands import random_commands  # noqa: E402
from simple_switch import (  # noqa: E402
    CLI,
    SWITCH,
    CommandLine,
    EndedError,
    SwitchError,
    wait_for_server,
)
from virtual_switch import binary  # noqa: E402

SESSIONS = HERE / "sessions"
DIFFERENCES = HERE / "differences.json"
TABLE_OF_REASONS = REPOSITORY / "docs" / "thrift.md"
_PORT = 9090
_OPTIONS = ("--device-id", "7", "--thrift-port", str(_PORT))
_TARGET_OPTIONS = ("--", "--enable-swap")
_TIMEOUT_S = 1800
_SEND = "send"
_PORTS = (1, 2)
# Of packet(7): ETH_P_ALL, PACKET_OUTGOING.
_ALL_PROTOCOLS, _OUTGOING = 3, 4
_FRAME_TIMEOUT_S = 20.0
# Commands of Python's cmd.Cmd, and one that runs a program of the machine.
_NOT_OF_A_SWITCH = {"EOF", "help", "shell"}
WRONG_ARGUMENTS = "wrong arguments"
_THE_SWITCH_HAS_ENDED = "(the switch has ended)"


@dataclass(frozen=True)
class Session:
    """The commands that a switch gets after its start with a program."""

    name: str
    program: str
    commands: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """The answers of both to a command of a session."""

    session: str
    command: str
    bmv2: str
    here: str


@dataclass(frozen=True)
class Compared:
    """What a comparison has found."""

    commands: int
    found: list[Difference]


Answers = dict[str, list[str]]
"""The answers to each session's commands, by its name."""


def written_sessions() -> list[Session]:
    """The sessions in the folder."""
    found = []
    for path in sorted(SESSIONS.glob("*.txt")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        head, *commands = [line for line in lines if line and not line.startswith("#")]
        word, program, *options = head.split()
        assert word == "program", f"{path} begins with 'program' and its path"
        found.append(Session(path.stem, program, tuple(commands), tuple(options)))
    return found


def wrong_arguments(program: str, commands: list[str]) -> Session:
    """Each command with numbers of arguments of which at least two are wrong."""
    arguments = ("", "none", "0 1 2 3 4 5 6 7 8")
    lines = [f"{name} {words}".rstrip() for name in commands for words in arguments]
    return Session(WRONG_ARGUMENTS, program, tuple(lines))


def commands_of(help_text: str) -> list[str]:
    """The commands that `help` lists, but for those that no switch answers."""
    # Each list is below a line of '='.
    lists = re.split(r"^.*\n=+\n", help_text + "\n", flags=re.MULTILINE)[1:]
    return sorted({name for text in lists for name in text.split()} - _NOT_OF_A_SWITCH)


def normal(command: str, answer: str) -> str:
    """The answer without what differs between two runs, or has no meaning for a program."""
    # Of an error that ends the command line, the last line is the error.
    before, traceback, after = answer.partition("Traceback (most recent call last):\n")
    if traceback:
        answer = f"{before}{after.splitlines()[-1]}"
    # Texts for people.
    answer = re.sub(r"(TApplicationException|UnicodeDecodeError).*", r"\1", answer, flags=re.DOTALL)
    answer = re.sub(r"\d+ms since hit", "(a time) since hit", answer)
    words = command.split()
    if words[0] in ("get_time_elapsed", "get_time_since_epoch"):
        answer = re.sub(r"^\d+$", "(a time)", answer)
    elif words[0] == "pvs_get":
        answer = "\n".join(sorted(answer.splitlines()))
    elif words[0] == "mc_dump":
        answer = _normal_dump(answer)
    return answer


def _normal_dump(answer: str) -> str:
    """Groups and LAGs in order.

    Of a LAG, the command line shows the ports of another object, or ends when there is none.
    """
    groups, _, lags = answer.partition("LAGS\n")
    texts = sorted(groups.replace("==========\n", "").split("**********\n"))
    if "UnboundLocalError" not in lags:
        texts += sorted(re.findall(r"lag\(\d+\)", lags))
    return "\n".join(texts)


@contextmanager
def _running(switch: Path, session: Session, folder: Path) -> Iterator[None]:
    """Run a switch, of whichever kind, in a folder."""
    with (folder / "switch.log").open("wb") as log:
        notifications = f"ipc://{folder}/notifications.ipc"
        call = [str(switch), *_OPTIONS, "--notifications-addr", notifications]
        call += [word for port in _PORTS for word in ("-i", f"{port}@s{port}")]
        call += [str(REPOSITORY / session.program), *_TARGET_OPTIONS, *session.options]
        process = subprocess.Popen(call, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

        def check_alive() -> None:
            if process.poll() is not None:
                said = (folder / "switch.log").read_text(errors="replace").strip()
                raise SwitchError(f"{switch} ended with {process.returncode}: {said[-500:]}")

        try:
            wait_for_server(_PORT, check_alive)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class _Wires:
    """The far ends of the switch's wires."""

    def __init__(self) -> None:
        self._ends: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        for port in _PORTS:
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._ends[port] = end
            end.bind((f"t{port}", _ALL_PROTOCOLS))
            end.settimeout(_FRAME_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends.values():
            end.close()

    def send(self, into: int, out_of: list[int], frame: bytes) -> str:
        """Send a frame into a port; return what leaves the others."""
        self._ends[into].send(frame)
        return "\n".join(f"{port}: {self._received(port)}" for port in out_of)

    def _received(self, port: int) -> str:
        while True:
            try:
                frame, address = self._ends[port].recvfrom(2048)
            except TimeoutError:
                return "(nothing)"
            if address[2] != _OUTGOING:
                return frame.hex()


def _answers(session: Session, switch: Path, cli: str) -> list[str]:
    """The answers of a switch that is started for the session.

    An error that ends the command line is an answer; the next command gets a new command line.
    """
    answers = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _Wires() as wires,
        _running(switch, session, Path(folder)),
    ):
        command_line = CommandLine(_PORT, cli, Path(folder))
        for command in session.commands:
            if command.startswith(f"{_SEND} "):
                _, into, out_of, frame = command.split()
                ports = [int(port) for port in out_of.split("+") if port != "-"]
                answers.append(wires.send(int(into), ports, bytes.fromhex(frame)))
                continue
            try:
                (answer,) = command_line.run([command.replace("FOLDER", folder)])
            except EndedError as error:
                answer = error.said
                command_line.close()
                try:
                    command_line = CommandLine(_PORT, cli, Path(folder))
                except EndedError:
                    answers.append(_THE_SWITCH_HAS_ENDED)
                    break
            answers.append(normal(command, answer.replace(folder, "FOLDER")))
        command_line.close()
    return answers


def _run_inside(sessions: list[Session], switch: Path, cli: str) -> Answers:
    """Run the sessions, one after another."""
    return {session.name: _answers(session, switch, cli) for session in sessions}


def answers_of(sessions: list[Session], switch: Path, cli: str) -> Answers:
    """The answers of a switch, in a network namespace of its own.

    Raises:
        SwitchError: a session could not be run.

    """
    asked = {
        "sessions": [asdict(session) for session in sessions],
        "switch": str(switch),
        "cli": str(_found(cli)),
    }
    ended = subprocess.run(
        [*enter(), "unshare", "--mount", "--", sys.executable, __file__, "--inside"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if ended.returncode != 0:
        raise SwitchError(ended.stderr.strip()[-2000:])
    told: Answers = json.loads(ended.stdout)
    return told


def _inside() -> None:
    """Answer the process that has made the network namespace."""
    from pacing_switch.wires import make_wires

    asked = json.load(sys.stdin)
    # simple_switch reads there whether an interface is up.
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    make_wires((f"s{port}", f"t{port}") for port in _PORTS)
    sessions = [
        Session(each["name"], each["program"], tuple(each["commands"]), tuple(each["options"]))
        for each in asked["sessions"]
    ]
    print(json.dumps(_run_inside(sessions, Path(asked["switch"]), asked["cli"])))


def differences(sessions: list[Session], bmv2: Answers, here: Answers) -> list[Difference]:
    """The answers that differ, in order.

    Raises:
        SwitchError: a switch has ended before the last command of a session.

    """
    found = []
    for session in sessions:
        theirs, ours = bmv2[session.name], here[session.name]
        least = min(len(theirs), len(ours))
        if least < len(session.commands):
            raise SwitchError(f"{session.name}: a switch ended at: {session.commands[least - 1]}")
        for command, their, our in zip(session.commands, theirs, ours, strict=True):
            if their != our:
                found.append(Difference(session.name, command, their, our))
    return found


def listed() -> list[tuple[str, Difference]]:
    """The subject of each difference that is listed, and the difference."""
    rows = json.loads(DIFFERENCES.read_text())
    return [(row.pop("subject"), Difference(**row)) for row in rows]


def subjects() -> list[str]:
    """The subjects in the documentation's table of differences."""
    section = TABLE_OF_REASONS.read_text().partition("## What differs from BMv2\n")[2]
    rows = re.findall(r"^\| (.*?) \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    return rows[1:]


def not_as_listed(found: list[Difference], sessions: list[Session]) -> list[str]:
    """A text for each difference that is not listed, and each listed one that did not occur."""
    names = {session.name for session in sessions}
    expected = Counter(each for _, each in listed() if each.session in names)
    occurred = Counter(found)
    texts = [f"not listed: {text(each)}" for each in (occurred - expected).elements()]
    return texts + [f"does not occur: {text(each)}" for each in (expected - occurred).elements()]


def text(difference: Difference) -> str:
    """The difference for people."""
    return (
        f"{difference.session}: {difference.command}\n"
        f"  BMv2: {difference.bmv2!r}\n  here: {difference.here!r}"
    )


def record(found: list[Difference]) -> None:
    """Rewrite the list, with the subjects that it has."""
    known = {difference: subject for subject, difference in listed()}
    rows = [{"subject": known.get(each, "")} | asdict(each) for each in found]
    DIFFERENCES.write_text(json.dumps(rows, indent=1) + "\n")


def _found(program: str) -> Path:
    """The path of a program that is there (`programs_missing`); switches run in other folders."""
    return Path(shutil.which(program) or program).absolute()


def programs_missing(switch: str, cli: str) -> str:
    """Why nothing can be compared; empty if it can."""
    missing = [name for name in (switch, cli) if shutil.which(name) is None]
    return f"not run: no {' and no '.join(missing)}" if missing else ""


def all_sessions(cli: str) -> list[Session]:
    """The written sessions, and that with wrong arguments."""
    written = written_sessions()
    program = next(session.program for session in written if session.name == "entries")
    (help_text,) = answers_of([Session("help", program, ("help",))], binary(), cli)["help"]
    return [*written, wrong_arguments(program, commands_of(help_text))]


def compare(sessions: list[Session], switch: str, cli: str) -> Compared:
    """Run the sessions on both switches."""
    bmv2 = answers_of(sessions, _found(switch), cli)
    here = answers_of(sessions, binary(), cli)
    return Compared(sum(map(len, bmv2.values())), differences(sessions, bmv2, here))


def compare_random(count: int, seed: str, switch: str, cli: str) -> int:
    """Compare random sessions; return the number of those with a difference."""
    different = 0
    for program in dict.fromkeys(session.program for session in written_sessions()):
        commands = random_commands(REPOSITORY / program, count, f"{seed}/{program}")
        session = Session(f"random on {Path(program).stem}", program, tuple(commands))
        compared = compare([session], switch, cli)
        print(f"{session.name}: {compared.commands} commands, {len(compared.found)} differences")
        for difference in compared.found[:10]:
            print(text(difference))
        different += bool(compared.found)
    return different


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--simple-switch", default=SWITCH, help="by default that on PATH")
    arguments.add_argument("--cli", default=CLI, help="by default that on PATH")
    arguments.add_argument("--only", default="", help="sessions whose name contains this")
    arguments.add_argument("--record", action="store_true", help="rewrite differences.json")
    arguments.add_argument("--random", type=int, default=0, help="so many random commands more")
    arguments.add_argument("--seed", default="1", help="any text")
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.inside:
        _inside()
        return 0
    if given.record and given.only:
        arguments.error("--record needs all sessions")
    if why := programs_missing(given.simple_switch, given.cli):
        print(why)
        return 0
    sessions = [each for each in all_sessions(given.cli) if given.only in each.name]
    compared = compare(sessions, given.simple_switch, given.cli)
    if given.record:
        record(compared.found)
    wrong = not_as_listed(compared.found, sessions)
    for line in wrong:
        print(line)
    print(
        f"{compared.commands} commands in {len(sessions)} sessions, {len(compared.found)} "
        f"differences, {len(wrong)} not as listed"
    )
    different = 0
    if given.random:
        different = compare_random(given.random, given.seed, given.simple_switch, given.cli)
    return 1 if wrong or different else 0


if __name__ == "__main__":
    sys.exit(main())
