"""Puts the simulation's clocks and random numbers in the place of the real ones, for a time."""

import contextlib
import os
import random
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Self
from unittest import mock

import ovs.jsonrpc
from loop import SimulatedLoop
from pacer_controller import events
from pacer_controller.stores.etcd import leases


def _no_sleep(_: float) -> None:
    raise AssertionError("time.sleep within a simulation would stop all of its nodes")


@contextlib.contextmanager
def simulated(loop: SimulatedLoop, seed: str) -> Iterator[None]:
    """Have time and random numbers come from a simulation while the block runs."""
    chance = random.Random(f"{seed}/secrets")

    class _Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(loop.wall(), tz or UTC)

    def monotonic_ns() -> int:
        return int(loop.time() * 1e9)

    def time_ns() -> int:
        return int(loop.wall() * 1e9)

    def urandom(count: int) -> bytes:
        return chance.randbytes(count)

    before = random.getstate()
    random.seed(f"{seed}/random")
    # The default of a parameter was bound when the module was read.
    keep: Any = leases.Leases.__init__
    defaults = tuple(
        loop.time if one is leases.lease_clock else one for one in keep.__defaults__ or ()
    )
    patches: list[Any] = [
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(time, "perf_counter", loop.time),
        mock.patch.object(time, "time", loop.wall),
        mock.patch.object(time, "monotonic_ns", monotonic_ns),
        mock.patch.object(time, "perf_counter_ns", monotonic_ns),
        mock.patch.object(time, "time_ns", time_ns),
        mock.patch.object(time, "sleep", _no_sleep),
        mock.patch.object(os, "urandom", urandom),
        # The source of `secrets` and `random.SystemRandom`.
        mock.patch.object(random, "_urandom", urandom),
        mock.patch.object(secrets, "token_bytes", urandom),
        mock.patch.object(events, "datetime", _Datetime),
        mock.patch.object(keep, "__defaults__", defaults),
        # A counter of the whole process, so that a run would depend on the runs before it.
        mock.patch.object(ovs.jsonrpc.Message, "_next_id", 0),
    ]
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, before)
        for patch in patches:
            stack.enter_context(patch)
        yield
