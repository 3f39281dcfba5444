"""Each `pacer` command in the documentation is one that the command line has."""

import re
import shlex
from pathlib import Path

import click
import pytest

from pacer_controller.cli.main import cli

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", ROOT / "controller/README.md", *sorted((ROOT / "docs").glob("*.md")))
PREFIX = r"(?:^ {4,}|`)(?:\$ |build/venv/bin/)*"
COMMAND = re.compile(PREFIX + r"pacer ((?:[^`\n\\]|\\\n)+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for text in COMMAND.findall(page.read_text()):
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        command: click.Command = cli
        context = click.Context(cli)
        options = {name for one in cli.params for name in one.opts}
        while words and isinstance(command, click.Group):
            name = words.pop(0)
            found = command.get_command(context, name)
            assert found is not None, f"pacer {text}: no command {name!r}"
            command = found
            options |= {option for one in command.params for option in one.opts}
        given = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z]\S*", word)}
        assert given <= options | {"--help", "-h"}, f"pacer {text}"
