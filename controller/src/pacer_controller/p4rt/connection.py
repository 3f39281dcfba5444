"""Keeps one P4Runtime connection to one switch: connect, bid to be primary, try again."""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import finsy as fy

from pacer_controller.config import SwitchConfig
from pacer_controller.p4rt import errors
from pacer_controller.rows import Rows
from pacer_controller.southbound import DriverContext, State, SwitchCounters
from pacer_controller.switch_tls import endpoint
from pacer_controller.traffic_manager import TrafficManager

_LOG = logging.getLogger(__name__)

CONNECT_S = 30.0
"""Longest time from connecting to having the pipeline in place."""

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 1.0
RETRY_REFUSED_S = 5.0
"""Pause after a switch refused the pipeline or broke the protocol."""


@functools.lru_cache(maxsize=16)
def _parsed(path: Path, _changed_ns: int) -> Any:
    return fy.P4Schema(path).p4info


def p4info(path: Path) -> Any:
    """Return a P4Info message, parsed once for all switches and attempts to connect.

    A switch that is away is tried every second, and the text takes milliseconds to parse: with
    hundreds of switches away nothing else would be done.
    """
    return _parsed(path, path.stat().st_mtime_ns)


class Connection:
    """A connection to a switch, and the loop that keeps it.

    Args:
        config: which switch.
        json_path: the compiled program.
        p4info_path: its P4Info.
        context: what it has to do with the rest.
        ready: called while the connection is up, as primary or backup; cancelled and called again
            when the role changes.

    Attributes:
        state: how the switch is doing.
        last_error: why it is not connected.
        switch: the switch while the connection is up.
        traffic: its traffic manager while the connection is up.
        held: what the switch held when it was last known; None on a new connection.
        bid: election id of the last connection.

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
        self.bid = context.leadership.election_id
        self._config = config
        self._context = context
        self._ready = ready
        self._json_path, self._p4info_path = json_path, p4info_path
        self._below = 0
        """How far to bid below the leader's election id: that many others have connected."""
        self._bid_for = self.bid
        """The leader's election id that `bid` was computed from."""
        self._bid_again = asyncio.Event()

    def set_state(self, state: State) -> None:
        """Note how the switch is doing, and report a change."""
        if state is not self.state:
            _LOG.info("switch %s: %s", self.name, state.value)
            data = {"from": self.state.value, "to": state.value, "reason": self.last_error}
            self.state = state
            self._context.notify("switch-state", f"switch {self.name} is {state.told}", data)

    def outbid(self) -> bool:
        """Connect again if another election id is due; returns whether it is."""
        due = self._bid_for != self._context.leadership.election_id
        if due:
            self._bid_again.set()
        return due

    async def run(self) -> None:
        """Keep the switch connected until cancelled."""
        retry_s = RETRY_FIRST_S
        while True:
            errors.take_last_error(self.name)
            began = time.monotonic()
            try:
                refused = await self._try_session()
            finally:
                self.set_state(State.PENDING)
                self.switch = None
                self.held = None
                if self.traffic is not None:
                    await self.traffic.close()
                    self.traffic = None
            cause = errors.take_last_error(self.name)
            if errors.election_id_taken(cause):
                # Another controller has it: stand behind that one, at once.
                self._below = self._below + 1 if self.bid > 1 else 0
                refused = False
            elif cause is not None:
                refused = True
                self._note_unexpected(cause)
            if time.monotonic() - began > 2.0:
                retry_s = RETRY_FIRST_S
            if self._bid_again.is_set():
                self._bid_again.clear()
                continue
            await asyncio.sleep(RETRY_REFUSED_S if refused else retry_s)
            retry_s = min(retry_s * 2, RETRY_MOST_S)

    async def _try_session(self) -> bool:
        """Stay connected while that is possible; returns whether the switch refused."""
        task = asyncio.current_task()
        try:
            await self._session()
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            # finsy cancels its own connecting task when a later step fails. It has said why, unless
            # the switch just went away.
        except fy.P4ClientError as error:
            if not errors.election_id_taken(error):
                refused = not errors.gone(error)
                self.note(errors.describe(error), refused)
                return refused
        except TimeoutError:
            self.note(f"no answer within {CONNECT_S:g} s", loud=True)
            return True
        except Exception as error:
            # Whatever happens to one connection, the next one is tried.
            self._note_unexpected(error)
            return True
        return False

    def note(self, message: str, loud: bool) -> None:
        """Note an error and log it; unless it is `loud`, only when it is new."""
        if loud or message != self.last_error:
            level = logging.ERROR if loud else logging.WARNING
            _LOG.log(level, "switch %s at %s: %s", self.name, self._config.address, message)
        self.last_error = message

    def _note_unexpected(self, error: BaseException) -> None:
        """Note what the switch said, or with its trace what went wrong here."""
        if isinstance(error, fy.P4ClientError):
            self.note(errors.describe(error), loud=True)
            return
        self.note(str(error) or type(error).__name__, loud=True)
        if not isinstance(error, (RuntimeError, OSError)):
            _LOG.error("switch %s: unexpected", self.name, exc_info=error)

    async def _session(self) -> None:
        """Connect once and stay until the connection breaks or another election id is due."""
        self._bid_for = self._context.leadership.election_id
        self.bid = max(1, self._bid_for - self._below)
        address, credentials = endpoint(self._config.address, self._context.tls)
        options = fy.SwitchOptions(
            # finsy takes the message as well as the path.
            p4info=p4info(self._p4info_path),
            p4blob=self._json_path,
            device_id=self._config.device_id,
            initial_election_id=self.bid,
            ready_handler=self._ready,
            channel_credentials=credentials,
        )
        switch = fy.Switch(self.name, address, options)
        down = asyncio.Event()
        switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, lambda _: down.set())
        self.traffic = TrafficManager(address, credentials)
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_S):
                await stack.enter_async_context(switch)
            self.switch = switch
            self._below = 0
            self.counters.connects += 1
            ends = [asyncio.create_task(event.wait()) for event in (down, self._bid_again)]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                self.counters.disconnects += 1
