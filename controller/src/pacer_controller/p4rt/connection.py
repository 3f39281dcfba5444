"""One P4Runtime connection to one switch: connects, bids if it has the right, and reconnects."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import finsy as fy
import grpc.aio

from pacer_controller.config import SwitchConfig
from pacer_controller.p4rt import errors
from pacer_controller.p4rt.schemas import schema
from pacer_controller.p4rt.session import EndedError, OutbidError, Session
from pacer_controller.permits import Permit
from pacer_controller.rows import Rows
from pacer_controller.southbound import (
    DriverContext,
    FenceError,
    NotHeldError,
    State,
    SwitchCounters,
)
from pacer_controller.switch_tls import endpoint
from pacer_controller.traffic_manager import TrafficManager

_LOG = logging.getLogger(__name__)

CONNECT_S = 30.0
"""Longest time of an attempt to connect, and then of having the pipeline in place."""

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 1.0
RETRY_REFUSED_S = 5.0
"""Pause after a switch refused the pipeline or broke the protocol."""

UNREACHED_S = 10.0
"""Time without an answer after which a switch may go to another controller, in seconds."""


class Connection:
    """A connection to a switch, and the loop that keeps it.

    Args:
        config: the configuration of the switch.
        json_path: the path of the compiled program.
        p4info_path: the path of its P4Info.
        context: the parts of the service that the driver uses.
        ready: called while the connection is up, as primary or backup; cancelled and called again
            when the role changes.

    Attributes:
        state: the state of the switch.
        last_error: the reason why it is not connected.
        switch: the switch while the connection is up.
        traffic: its traffic manager while the connection is up.
        held: the entries last known to be on the switch; None on a new connection.
        bid: the election id of the last connection; 0: none was bid.

    """

    def __init__(
        self,
        config: SwitchConfig,
        json_path: Path,
        p4info_path: Path,
        context: DriverContext,
        ready: Callable[[fy.Switch], Coroutine[Any, Any, None]],
    ) -> None:
        self.name = config.name
        self.counters = SwitchCounters()
        self.last_error: str | None = None
        self.state = State.PENDING
        self.switch: fy.Switch | None = None
        self.traffic: TrafficManager | None = None
        self.held: Rows | None = None
        self.bid = 0
        self._config = config
        self._context = context
        self._ready = ready
        self._json_path, self._p4info_path = json_path, p4info_path
        self._changed = False
        """Whether the last session ended because the right to write has changed."""
        self._reached_s = time.monotonic()
        self._answered = False
        """Whether the switch answered in this session."""
        self._permit: Permit | None = None
        self._limit: asyncio.Timeout | None = None
        """The time by which the session must have the pipeline in place."""

    def set_state(self, state: State) -> None:
        """Set the state of the switch, and report a change."""
        if state is not State.PENDING:
            # It is reconciled, or needs no reconcile.
            self._release()
        if state is not self.state:
            _LOG.info("switch %s: %s", self.name, state.value)
            data = {"from": self.state.value, "to": state.value, "reason": self.last_error}
            self.state = state
            self._context.notify("switch-state", f"switch {self.name} is {state.told}", data)

    async def run(self) -> None:
        """Keep the switch connected until cancelled."""
        retry_s = RETRY_FIRST_S
        self._reached_s = time.monotonic()
        while True:
            self._answered = False
            errors.take_last_error(self.name)
            began = time.monotonic()
            try:
                refused = await self._try_session()
            finally:
                self.set_state(State.PENDING)
                self._release()
                self.switch = None
                self.held = None
                self.traffic = None
            cause = errors.take_last_error(self.name)
            now_s = time.monotonic()
            if self._answered:
                self._reached_s = now_s
            if self._changed:
                continue
            if isinstance(cause, FenceError | EndedError) or errors.election_id_taken(cause):
                # The next attempt bids a new one, or none.
                refused = False
                if isinstance(cause, OutbidError) and self._context.tenure.held:
                    self.note(str(cause), loud=False)
            elif cause is not None:
                refused = True
                self._note_unexpected(cause)
            if now_s - self._reached_s > UNREACHED_S:
                self._context.tenure.reaches(False)
            if now_s - began > 2.0:
                retry_s = RETRY_FIRST_S
            await asyncio.sleep(RETRY_REFUSED_S if refused else retry_s)
            retry_s = min(retry_s * 2, RETRY_MOST_S)

    async def _try_session(self) -> bool:
        """Stay connected as long as possible; return whether the switch refused."""
        task = asyncio.current_task()
        try:
            await self._session()
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            # finsy cancels its own connecting task when a later step fails. It has logged the
            # reason, unless the switch just disconnected.
        except fy.P4ClientError as error:
            if not errors.election_id_taken(error):
                refused = not errors.gone(error)
                self.note(errors.describe(error), refused)
                return refused
        except FenceError as error:
            if not isinstance(error, NotHeldError):
                self.note(str(error), loud=False)
            return False
        except TimeoutError:
            self.note(f"no answer within {CONNECT_S:g} s", loud=True)
            return True
        except Exception as error:
            # The loop must try to connect again after any error.
            self._note_unexpected(error)
            return True
        return False

    def note(self, message: str, loud: bool) -> None:
        """Record an error and log it; if not `loud`, log it only when it is new."""
        if loud or message != self.last_error:
            level = logging.ERROR if loud else logging.WARNING
            _LOG.log(level, "switch %s at %s: %s", self.name, self._config.address, message)
        self.last_error = message

    def _note_unexpected(self, error: BaseException) -> None:
        """Record the switch's error or, with its traceback, an error of the controller."""
        if isinstance(error, fy.P4ClientError):
            self.note(errors.describe(error), loud=True)
            return
        self.note(str(error) or type(error).__name__, loud=True)
        if not isinstance(error, (RuntimeError, OSError)):
            _LOG.error("switch %s: unexpected", self.name, exc_info=error)

    async def _session(self) -> None:
        """Stay connected until the connection breaks or the right to write changes."""
        tenure = self._context.tenure
        held = tenure.held
        self._changed = False
        change = asyncio.create_task(tenure.becomes(not held), name=f"tenure {self.name}")
        connected = asyncio.create_task(self._connected(held), name=f"session {self.name}")
        try:
            await asyncio.wait([change, connected], return_when=asyncio.FIRST_COMPLETED)
            if connected.done():
                connected.result()
            self._changed = change.done()
        finally:
            change.cancel()
            connected.cancel()
            await asyncio.wait([connected])

    async def _connected(self, held: bool) -> None:
        """Connect once and stay until the connection breaks."""
        address, credentials = endpoint(self._config.address, self._context.tls)
        options = fy.SwitchOptions(
            device_id=self._config.device_id,
            ready_handler=self._ready,
            channel_credentials=credentials,
        )
        own = self._config.target == "pacing_switch"
        switch = Session(
            self.name,
            address,
            options,
            self._context.tenure,
            schema(self._p4info_path, self._json_path),
            self._admitted,
            bids=held,
            # Stock BMv2 treats an update without an election id as a bid of 0.
            looks_first=own and not self._context.tenure.exclusive,
            keepalive=own,
        )
        down = asyncio.Event()
        switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, lambda _: down.set())
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_S) as self._limit:
                await stack.enter_async_context(switch)
            self.switch = switch
            self.bid = switch.election_id
            self.counters.connects += 1
            try:
                await down.wait()
            finally:
                self.counters.disconnects += 1

    async def _admitted(self, channel: grpc.aio.Channel) -> None:
        """Note that the switch answers, and wait for a permit, however long that takes."""
        self.traffic = TrafficManager(channel)
        self._answered = True
        self._context.tenure.reaches(True)
        self._extend(None)
        self._permit = await self._context.permits.take()
        self._extend(CONNECT_S)

    def _extend(self, time_s: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            end_s = None if time_s is None else asyncio.get_running_loop().time() + time_s
            self._limit.reschedule(end_s)

    def _release(self) -> None:
        if self._permit is not None:
            self._permit.release()
            self._permit = None
