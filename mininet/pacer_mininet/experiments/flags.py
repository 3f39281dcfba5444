"""Options of the demo's and the experiments' commands that are on or off."""

import argparse
import os


def add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add the option `--name`; its default comes from the environment variable NAME."""
    default = os.environ.get(name.upper(), "0") not in ("", "0")
    parser.add_argument(f"--{name}", action="store_true", default=default, help=text)
