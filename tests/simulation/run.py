"""Runs seeds; one seed is one run, and a run depends on nothing else.

    run.py [--seeds N] [--first SEED] [--jobs N] [--scene NAME] [--plant NAME] [--rule NAME]
           [--story]

The scene of a seed is `world.scene_of`, unless the command names one.
A seed that fails is printed, with its faults reduced to those without which it does not fail, and
the command that runs it again.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streams
import threads
import vfs
from clocks import simulated
from invariants import Invariants, Violation
from loop import SimulatedLoop, SimulationError
from pacer_controller import switch_services
from planted import PLANTS
from rpc import installed
from world import (
    CLIENTS_UNTIL_S,
    SCENES,
    Fault,
    Scene,
    World,
    scene_of,
    schedule,
    sizes,
)

REST_MOST_S = 30.0
"""Longest time until the world must have come to rest."""

LOOK_S = 0.25

SEEDS_OF_A_WORKER = 200
"""Seeds that a process runs, on average, before another one takes its place."""


Watch = Callable[[World, Invariants], Coroutine[Any, Any, float]]


@dataclass
class Result:
    """The outcome of a run.

    Attributes:
        violations: the violated invariants.
        digest: a digest of all events.
        rest_s: the time from the last fault to rest, in seconds.
        story: the events, line by line.

    """

    seed: str
    violations: list[Violation]
    digest: str
    rest_s: float
    callbacks: int
    operations: int
    acknowledged: int
    story: list[str] = field(repr=False)


class _Errors(logging.Handler):
    """Keeps records that were logged with an exception, or as critical."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.records.append(record)


class _Story(logging.Handler):
    """Puts log records into the story."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(logging.DEBUG)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        who = self._loop.asking()
        text = self.format(record)
        self._loop.notes.append(f"{self._loop.now_s:10.6f} {who}: {record.levelname} {text}")


@contextlib.contextmanager
def _logging(loop: SimulatedLoop, *, story: bool) -> Iterator[_Errors]:
    errors, teller = _Errors(), _Story(loop)
    logger = logging.getLogger("pacer_controller")
    before = (logger.level, logger.propagate)
    logger.setLevel(logging.DEBUG if story else logging.ERROR)
    logger.propagate = False
    logger.addHandler(errors)
    if story:
        logger.addHandler(teller)
    quiet = [logging.getLogger(name) for name in ("finsy", "asyncio", "grpc")]
    levels = [one.level for one in quiet]
    quiet[0].setLevel(logging.CRITICAL)
    quiet[0].propagate = False
    for one in quiet[1:]:
        one.setLevel(logging.CRITICAL + 1)
    try:
        yield errors
    finally:
        logger.removeHandler(errors)
        logger.removeHandler(teller)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for one, level in zip(quiet, levels, strict=True):
            one.setLevel(level)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Ignore the reports of coroutines that are closed because they are no longer referenced."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook


async def watch(world: World, invariants: Invariants) -> float:
    """Let the world go on until it rests; returns how long that took after the last fault."""
    loop, rested_s, why = world.loop, None, ""
    while loop.now_s < CLIENTS_UNTIL_S + REST_MOST_S:
        await asyncio.sleep(LOOK_S)
        invariants.look()
        if loop.now_s <= CLIENTS_UNTIL_S:
            continue
        why = _unrest(world, invariants)
        if why:
            rested_s = None
        elif rested_s is None:
            rested_s = loop.now_s - CLIENTS_UNTIL_S
        # A client may still wait for an answer that does not come, or that changes something.
        if rested_s is not None and all(client.done for client in world.clients):
            return rested_s
    invariants.broken("rest", why or "a client still waits")
    return REST_MOST_S


def _unrest(world: World, invariants: Invariants) -> str:
    """Return the differences from the desired state at the end."""
    for switch in world.switches:
        how = invariants.unrest(switch)
        if how is not None:
            return f"{switch.name} {how}"
    return invariants.differing() or ""


@dataclass(frozen=True)
class Work:
    """A seed to be run.

    Attributes:
        seed: the seed.
        scene: the scene.
        plant: name of a fault in the product; empty: none.

    """

    seed: str
    scene: Scene
    plant: str = ""

    def faults(self) -> list[Fault]:
        """Return the faults of the seed and scene."""
        return schedule(self.seed, self.scene)


def run(
    work: Work,
    faults: Sequence[Fault] | None = None,
    *,
    story: bool = False,
    watching: Watch = watch,
) -> Result:
    """Run one seed.

    Args:
        work: the seed, and the scene.
        faults: the faults; None: those of the seed.
        story: whether to keep the controllers' logs, too.
        watching: lets the world go on until the run ends, and returns the time to rest.

    """
    _prepare()
    gc.disable()
    loop = SimulatedLoop(work.seed)
    try:
        return _run(loop, work, work.faults() if faults is None else faults, story, watching)
    finally:
        # Coroutines that are freed begin tasks that close their channels, on the thread's loop.
        # That loop would keep them, and with them the world.
        last = asyncio.new_event_loop()
        asyncio.set_event_loop(last)
        with _silent():
            loop.finish()
            # It has all the rest.
            del loop
            gc.collect()
            asyncio.set_event_loop(None)
            last.close()
            gc.collect()
            _exempt()
        gc.enable()


@functools.cache
def _prepare() -> None:
    """Make the objects that all runs share."""
    switch_services.messages()


@functools.cache
def _exempt() -> None:
    """Exempt from garbage collection, once, what the first run has left: all runs share it."""
    gc.freeze()


def _run(
    loop: SimulatedLoop, work: Work, faults: Sequence[Fault], story: bool, watching: Watch
) -> Result:
    seed = work.seed
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(_logging(loop, story=story))
        stack.enter_context(sizes(seed))
        stack.enter_context(simulated(loop, seed))
        stack.enter_context(vfs.installed(loop))
        stack.enter_context(threads.installed())
        if work.plant:
            stack.enter_context(PLANTS[work.plant].planted())
        world = loop.world.context.run(World, loop, seed, faults, work.scene)
        invariants = Invariants(world)
        stack.enter_context(invariants.observing())
        stack.enter_context(installed(world.core))
        stack.enter_context(streams.installed(loop, world.network, invariants.sent))
        rest_s = REST_MOST_S
        try:
            rest_s = loop.run_until_complete(loop.world.spawn(watching(world, invariants)))
            invariants.check_events()
            invariants.check_generations()
        except SimulationError as error:
            invariants.broken("stuck", str(error))
        invariants.check_history()
        invariants.check_reports(errors.records)
    acknowledged = sum(
        one.outcome in (200, 201, 204) and one.method != "GET" for one in world.operations
    )
    return Result(
        seed,
        invariants.found,
        loop.digest,
        rest_s,
        loop.handles,
        len(world.operations),
        acknowledged,
        list(loop.notes),
    )


def reduced(work: Work, rule: str) -> list[Fault]:
    """Return a minimal set of faults: with one fewer, the seed does not fail in the same way."""
    faults = work.faults()
    for fault in list(faults):
        fewer = [one for one in faults if one is not fault]
        if any(one.rule == rule for one in run(work, fewer).violations):
            faults = fewer
    return faults


def _one(work: Work) -> tuple[Work, Result]:
    try:
        result = run(work)
    except Exception as error:
        # Later seeds are run all the same.
        text = "".join(traceback.format_exception(error)).rstrip()
        result = Result(work.seed, [Violation("crash", text)], "", REST_MOST_S, 0, 0, 0, [])
    result.story = []
    return work, result


def results_of(work: Sequence[Work], jobs: int) -> Generator[tuple[Work, Result]]:
    """Run all work in order, in `jobs` processes at a time.

    The processes are replaced between two blocks of work: `ProcessPoolExecutor`'s own
    `max_tasks_per_child` can wait forever for a process that has ended.
    """
    if jobs == 1:
        yield from map(_one, work)
        return
    block = jobs * SEEDS_OF_A_WORKER
    for first in range(0, len(work), block):
        # Unlike multiprocessing.Pool it raises an error if the kernel kills a worker.
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
            yield from pool.map(_one, work[first : first + block])


def report(work: Work, result: Result, *, quick: bool) -> None:
    """Print a seed that fails, with its minimal set of faults."""
    print(f"seed {work.seed} fails, scene {work.scene.name}; digest {result.digest}")
    for violation in result.violations:
        print(f"  {violation}")
    if not quick and result.violations[0].rule != "crash":
        print("  faults that it takes:")
        for fault in reduced(work, result.violations[0].rule):
            print(f"    {fault}")
    again = f"{Path(__file__).name} --first {work.seed} --seeds 1 --story"
    how = f"--plant {work.plant}" if work.plant else f"--scene {work.scene.name}"
    print(f"  again: {again} {how}", flush=True)


def main() -> int:
    """Run the command; the exit status says whether a seed failed."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are walked in the order of their hashes.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    # Reports of coroutines that are closed after a run, because they are no longer referenced.
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--first", type=int, default=1, help="the first one (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="at a time (default 1)")
    parser.add_argument("--scene", choices=SCENES, help="what there is (default: by seed)")
    parser.add_argument("--plant", default="", choices=["", *PLANTS], help="a fault on purpose")
    parser.add_argument("--rule", action="append", help="count only violations of this rule")
    parser.add_argument("--story", action="store_true", help="print what happens")
    parser.add_argument("--digests", action="store_true", help="print each seed's digest")
    parser.add_argument("--quick", action="store_true", help="do not reduce what fails")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first failure")
    given = parser.parse_args()
    begun_s = time.monotonic()
    scene = SCENES.get(PLANTS[given.plant].scene if given.plant else given.scene)
    work = [
        Work(str(number), scene or scene_of(number), given.plant)
        for number in range(given.first, given.first + given.seeds)
    ]
    rests: list[float] = []
    failed = acknowledged = 0
    if given.story:
        result = run(work[0], story=True)
        print("\n".join(result.story))
        print(result.digest)
        for violation in result.violations:
            print(violation)
        return 1 if result.violations else 0
    with contextlib.closing(results_of(work, given.jobs)) as results:
        for done, (one, result) in enumerate(results, 1):
            rests.append(result.rest_s)
            acknowledged += result.acknowledged
            if given.digests:
                print(f"seed {result.seed}: {result.digest}", flush=True)
            if given.rule:
                result.violations = [v for v in result.violations if v.rule in given.rule]
            if result.violations:
                failed += 1
                report(one, result, quick=given.quick)
                if not given.keep_going:
                    break
            if done % 100 == 0:
                print(f"{done} seeds, {failed} failed", flush=True)
    rests.sort()
    took_s = time.monotonic() - begun_s
    print(
        f"{len(rests)} seeds, {failed} failed, {acknowledged} acknowledged writes, "
        f"{took_s / len(rests):.2f} s a seed; to rest after the last fault: median "
        f"{rests[len(rests) // 2]:.2f} s, most {rests[-1]:.2f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
