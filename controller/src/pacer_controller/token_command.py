"""The command `pacer-controller token`: users of the REST interface, their roles and tokens."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from pacer_controller import users
from pacer_controller.config import ConfigError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = argparse.ArgumentParser(
        prog="pacer-controller token",
        description="Adds, lists and revokes the tokens of users. A controller that runs with the "
        "same --tokens FILE knows of it within two seconds.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="add|list|revoke")
    adding = commands.add_parser("add", help="give a user a token, and print it")
    listing = commands.add_parser("list", help="list users and roles")
    revoking = commands.add_parser("revoke", help="take a user's token back")
    for one in (adding, listing, revoking):
        text = "the file of users; made if it is missing"
        one.add_argument("--tokens", type=Path, required=True, metavar="FILE", help=text)
    for one in (adding, revoking):
        one.add_argument("name", metavar="NAME", help="the user, as events will name it")
    text = "read: look at everything; rates: also set classes, flows and meters; all: everything"
    adding.add_argument("--role", choices=users.ROLES, required=True, help=text)
    return made


def main(given: list[str]) -> int:
    """Run the command; returns the exit status."""
    arguments = parser().parse_args(given)
    path: Path = arguments.tokens
    try:
        if arguments.command == "add":
            today = datetime.now(UTC).date()
            token = users.add(path, arguments.name, arguments.role, today)
            print(f"{arguments.name} may {arguments.role}: PACER_TOKEN is", file=sys.stderr)
            print(token)
        elif arguments.command == "revoke":
            users.revoke(path, arguments.name)
        else:
            for name, one in users.read(path).items():
                print(f"{name:<24} {one.role:<6} added {one.added}")
    except ConfigError as error:
        print(f"pacer-controller: {error}", file=sys.stderr)
        return 2
    return 0
