"""The command `pacer-controller migrate`, which copies a store into another, empty one."""

import argparse
import asyncio
import contextlib
import logging
import sys
from pathlib import Path

from pacer_controller.config import SQLITE, ConfigError
from pacer_controller.records import ResourceChange
from pacer_controller.store_options import add_store_options, open_given
from pacer_controller.stores import Store, StoreError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = argparse.ArgumentParser(
        prog="pacer-controller migrate",
        description="Copies switches and their resources from a store to an empty one. Stop the "
        "controllers of both before. Class indices stay, so switches keep their entries; the "
        "events are not copied. The options are about the store in etcd.",
    )
    made.add_argument("source", metavar="FROM", help="sqlite:FILE or etcd://...")
    made.add_argument("target", metavar="TO", help="etcd://... or sqlite:FILE")
    add_store_options(made)
    return made


async def copy(source: Store, target: Store) -> tuple[int, int]:
    """Copy everything; return the numbers of switches and resources.

    Raises:
        StoreError: the source is empty, the target is not, or a store cannot be used.

    """
    if not source.switches() and not _has_resources(source):
        raise StoreError(f"{source.name} has no switches and no resources: name another one")
    if target.switches() or _has_resources(target):
        raise StoreError(f"{target.name} is not empty: name another prefix or file")
    names = dict.fromkeys((*source.switches(), *source.known()))
    changes = [
        ResourceChange(name, kind, of, None, record)
        for name in names
        for kind, of, record in source.desired(name).all()
    ]
    settings = {name: (one, 0) for name, (one, _) in source.switches().items()}
    # The records get revisions of the target, so that its next ones are higher.
    await target.write([change.unstored() for change in changes], (), settings)
    return len(names), len(changes)


def _has_resources(store: Store) -> bool:
    return any(any(store.desired(name).all()) for name in store.known())


def _check_there(url: str) -> None:
    """Check that the file of a store exists, which opening it would create.

    Raises:
        ConfigError: there is no such file.

    """
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        raise ConfigError(f"{url}: there is no such file")


async def _migrate(arguments: argparse.Namespace) -> None:
    _check_there(arguments.source)
    async with contextlib.AsyncExitStack() as stack:
        stores = []
        for url in (arguments.source, arguments.target):
            stores.append(await open_given(url, arguments))
            stack.push_async_callback(stores[-1].close)
        switches, resources = await copy(*stores)
    print(f"{switches} switches and {resources} resources are in {arguments.target}")


def main(given: list[str]) -> int:
    """Run the command; returns the exit status."""
    logging.basicConfig(level=logging.WARNING)
    arguments = parser().parse_args(given)
    try:
        asyncio.run(_migrate(arguments))
    except (ConfigError, StoreError) as error:
        print(f"pacer-controller: {error}", file=sys.stderr)
        return 2
    return 0
