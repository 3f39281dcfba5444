"""The model of a disk, the store on it, and the faults that the simulation has found there."""

import asyncio
import errno
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import vfs
from disk import SECTOR, Disk, Failing
from loop import Process, SimulatedLoop
from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.schemas import ClassSpec
from pacer_controller.stores import SqliteStore, UncertainError
from world import STATE


@pytest.fixture
def machine(loop: SimulatedLoop) -> Iterator["Machine"]:
    with vfs.installed(loop):
        yield Machine(loop)


class Machine:
    """A machine with a disk, on which programs run one after another."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.node = loop.node("c0")
        self.disk = self.node.disk = Disk("test")

    def run(self, work: Callable[[SqliteStore], Awaitable[Any]]) -> Any:
        """Run a program that opens the store, and kill it; None: it ended before its work."""

        async def main() -> Any:
            return await work(SqliteStore(STATE))

        process = Process(self._loop, self.node)
        task = process.spawn(main())
        self._loop.run_until_complete(self._loop.world.spawn(asyncio.sleep(1)))
        if not process.alive:
            return None
        process.end()
        return task.result()

    def end_at_call(self, number: int, *, power: bool) -> None:
        """End the program that runs at a call of its disk, counted from now."""

        def end() -> None:
            assert self.node.process is not None
            self.node.process.end()
            if power:
                self.disk.lose_power()

        self.disk.fuse = (number, end)


def made(name: str, number: int) -> list[ResourceChange]:
    """Return the change that creates a class."""
    record = ClassRecord(name, number, ClassSpec(rate=1_000_000))
    return [ResourceChange("s1", "class", name, None, record)]


async def names(store: SqliteStore) -> list[str]:
    """Return the classes that a store has found."""
    return sorted(store.desired("s1").classes)


async def closed(store: SqliteStore) -> None:
    """End cleanly."""
    store.shut()


# ---- the disk ----


def test_what_is_synced_survives_and_of_the_rest_each_sector_as_it_may() -> None:
    seen = set()
    for seed in range(60):
        disk = Disk(str(seed))
        file = disk.create("/a")
        disk.write(file, 0, b"a" * 2 * SECTOR)
        disk.sync(file)
        disk.sync_names()
        disk.write(file, 0, b"b" * 2 * SECTOR)
        disk.write(file, 2 * SECTOR, b"c" * SECTOR)
        assert disk.read(file, 0, 4 * SECTOR) == b"b" * 2 * SECTOR + b"c" * SECTOR
        disk.lose_power()
        left = disk.find("/a")
        assert left is not None
        seen.add(bytes(left.data))
        assert set(left.data[: 2 * SECTOR]) <= set(b"ab")
        assert set(left.data[2 * SECTOR :]) <= set(b"c\0")
    first = {one[:1] + one[SECTOR : SECTOR + 1] for one in seen}
    assert first == {b"aa", b"ab", b"ba", b"bb"}


def test_a_file_whose_directory_is_not_synced_may_be_gone() -> None:
    there = set()
    for seed in range(20):
        disk = Disk(str(seed))
        disk.sync(disk.create("/a"))
        assert disk.unsynced() == ["/a"]
        disk.lose_power()
        there.add(disk.exists("/a"))
    assert there == {True, False}


def test_after_a_sync_that_failed_the_cache_has_what_the_medium_has_not() -> None:
    disk = Disk("2")
    file = disk.create("/a")
    disk.sync_names()
    disk.write(file, 0, b"a" * 8 * SECTOR)
    disk.failing["sync"] = Failing(errno.EIO, once=True)
    with pytest.raises(OSError, match="sync fails"):
        disk.sync(file)
    disk.sync(file)
    assert disk.read(file, 0, 8 * SECTOR) == b"a" * 8 * SECTOR
    disk.lose_power()
    assert bytes(file.data) != b"a" * 8 * SECTOR


# ---- the store ----


@pytest.mark.parametrize("ends", ["kill", "power"])
def test_a_write_is_there_after_the_end_of_the_process(machine: Machine, ends: str) -> None:
    machine.run(lambda store: store.write(made("one", 1)))
    if ends == "power":
        machine.disk.lose_power()
    assert machine.run(names) == ["one"]


@pytest.mark.parametrize("power", [False, True])
def test_an_end_at_each_call_of_the_disk_leaves_a_write_whole_or_away(
    machine: Machine, power: bool
) -> None:
    machine.run(names)
    seen = set()
    for number in range(1, 12):
        name = f"c{number}"

        async def write(store: SqliteStore, name: str = name, number: int = number) -> str:
            machine.end_at_call(number, power=power)
            await store.write([*made(name, 2 * number), *made(f"{name}b", 2 * number + 1)])
            return "acknowledged"

        before = machine.run(names)
        said = machine.run(write)
        machine.disk.fuse = None
        found = [one for one in machine.run(names) if one not in before]
        assert found in ([], [name, f"{name}b"])
        assert found or said is None
        seen.add((said, bool(found)))
    assert (None, False) in seen
    assert ("acknowledged", True) in seen


@pytest.mark.parametrize("seed", range(12))
def test_what_a_failed_sync_has_left_in_the_cache_loses_no_later_write(
    machine: Machine, seed: int
) -> None:
    """SQLite reads a WAL up to its first gap: a gap in its middle would hide all later writes."""
    machine.disk = machine.node.disk = Disk(str(seed))
    machine.run(lambda store: store.write(made("before", 1)))

    async def fails(store: SqliteStore) -> None:
        machine.disk.failing["sync"] = Failing(errno.EIO, once=True)
        with pytest.raises(UncertainError):
            await store.write(made("uncertain", 2))
        assert store.broken is not None

    machine.run(fails)
    seen = machine.run(names)
    machine.run(lambda store: store.write(made("after", 3)))
    machine.disk.lose_power()
    assert machine.run(names) == sorted([*seen, "after"])


@pytest.mark.parametrize("seed", range(3))
def test_a_wal_whose_maker_was_killed_is_there_after_a_loss_of_power(
    machine: Machine, seed: int
) -> None:
    """SQLite syncs the directory for a file that it has just made, not for one that it finds."""
    machine.disk = machine.node.disk = Disk(str(seed))

    async def write(number: int, store: SqliteStore) -> None:
        await store.write(made(f"c{number}", number))

    machine.run(names)
    # A clean end removes the WAL.
    machine.run(closed)
    for number in range(1, 8):
        machine.end_at_call(number, power=False)
        machine.run(names)
        machine.disk.fuse = None
        machine.run(functools.partial(write, number))
        assert machine.disk.unsynced() in ([], [STATE])
        machine.disk.lose_power()
        assert f"c{number}" in machine.run(names)
        machine.run(closed)
