#!/usr/bin/env python3
"""Write the man pages of `pacer`, one for each of its commands, with click-man.

man_pages.py FOLDER VERSION
"""

import inspect
import re
import sys

import click
from click_man.core import write_man_pages
from pacer_controller.cli.main import cli

KEPT = re.compile(r"^\x08\n((?:.+\n?)+)", re.MULTILINE)
"""A paragraph that click prints as it is."""


def prepare(command: click.Command) -> None:
    """Give click-man whole sentences, and the words of a command, which click has as an epilog."""
    described = inspect.cleandoc(command.help or "")
    command.short_help = described.partition("\n\n")[0].replace("\n", " ").rstrip(".")
    words = inspect.cleandoc(command.epilog or "").replace("\\", "\\e").replace("-", "\\-")
    command.help = f"{described}\n\n" + KEPT.sub(r".nf\n\1\n.fi\n", words)
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def main() -> None:
    """Write all pages."""
    folder, version = sys.argv[1:]
    prepare(cli)
    write_man_pages("pacer", cli, version=version, target_dir=folder)


if __name__ == "__main__":
    main()
