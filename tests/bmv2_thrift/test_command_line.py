"""Every command of BMv2's command line, on both switches; by random commands, too."""

from __future__ import annotations

import command_line
import pytest
from command_line import (
    WRONG_ARGUMENTS,
    Difference,
    Session,
    all_sessions,
    commands_of,
    compare,
    differences,
    listed,
    normal,
    not_as_listed,
    programs_missing,
    subjects,
    text,
    written_sessions,
)
from namespaces import skip_without_interfaces
from random_commands import random_commands
from simple_switch import CLI, SWITCH, SwitchError

HELP = """
Documented commands (type help <topic>):
========================================
EOF      mc_dump  table_add
help

Undocumented commands:
======================
greet
"""


@pytest.fixture
def cli() -> str:
    """The command line, where both it and stock BMv2 are installed."""
    if why := programs_missing(SWITCH, CLI):
        pytest.skip(why)
    skip_without_interfaces()
    return CLI


def test_both_switches_answer_alike_but_for_what_is_listed(cli: str) -> None:
    *written, wrong = sessions = all_sessions(cli)
    used = {command.split()[0] for session in written for command in session.commands}
    assert {command.split()[0] for command in wrong.commands} - used == set()
    assert not_as_listed(compare(sessions, SWITCH, cli).found, sessions) == []


def test_both_switches_answer_random_commands_alike(cli: str) -> None:
    for session in written_sessions():
        commands = random_commands(command_line.REPOSITORY / session.program, 100, session.name)
        random = Session("random", session.program, tuple(commands))
        assert [text(each) for each in compare([random], SWITCH, cli).found] == []


def test_each_listed_difference_has_its_reason_in_the_documentation() -> None:
    reasons = subjects()
    assert len(reasons) > 10
    without = {subject for subject, _ in listed() if subject not in reasons}
    assert without == set()


def test_listed_differences_are_of_commands_that_sessions_have() -> None:
    commands = {session.name: session.commands for session in written_sessions()}
    for _, each in listed():
        assert each.session == WRONG_ARGUMENTS or each.command in commands[each.session]
        assert each.bmv2 != each.here


def test_a_difference_is_wrong_unless_it_is_listed_and_occurs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = Difference("s", "greet", "hello", "bye"), Difference("s", "greet", "a", "b")
    monkeypatch.setattr(command_line, "listed", lambda: [("subject", one)])
    sessions = [Session("s", "p", ("greet",))]
    assert not_as_listed([one], sessions) == []
    assert [line.split(":")[0] for line in not_as_listed([other], sessions)] == [
        "not listed",
        "does not occur",
    ]
    assert len(not_as_listed([one, one], sessions)) == 1
    # A session that was not run says nothing of its differences.
    assert not_as_listed([], []) == []


def test_no_command_is_left_out_because_a_switch_has_ended() -> None:
    sessions = [Session("s", "p", ("first", "second"))]
    with pytest.raises(SwitchError, match="s: a switch ended at: first"):
        differences(sessions, {"s": ["ended"]}, {"s": ["a", "b"]})
    both = differences(sessions, {"s": ["a", "ended"]}, {"s": ["a", "b"]})
    assert both == [Difference("s", "second", "ended", "b")]


def test_the_commands_are_those_that_help_lists() -> None:
    assert commands_of(HELP) == ["greet", "mc_dump", "table_add"]


def test_answers_are_compared_without_what_differs_between_runs() -> None:
    assert normal("get_time_elapsed", "12345") == normal("get_time_elapsed", "9")
    assert normal("register_read a 0", "12345") == "12345"
    assert normal("pvs_get a", "02\n01") == "01\n02"
    ended = 'Traceback (most recent call last):\n  File "a", line 1\nValueError: of x'
    assert normal("mc_node_destroy x", f"before\n{ended}") == "before\nValueError: of x"
    of_thrift = "thrift.Thrift.TApplicationException"
    assert normal("swap", f"{of_thrift}: one") == normal("swap", f"{of_thrift}: other\nand more")


def test_random_commands_are_those_of_the_seed() -> None:
    program = command_line.REPOSITORY / written_sessions()[0].program
    assert random_commands(program, 50, "1") == random_commands(program, 50, "1")
    assert random_commands(program, 50, "1") != random_commands(program, 50, "2")
