"""Keeps one P4Runtime connection to one switch: connect, bid to be primary, try again."""

import asyncio
import contextlib
import functools
import logging
import time
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
"""Pause after a switch refused the pipeline or broke the protocol: trying at once helps nobody."""


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
    """What there is to say about a connection, and the loop that keeps it.

    Args:
        config: which switch.
        json_path: the compiled program.
        p4info_path: its P4Info.
        context: what it has to do with the rest.

    """

    def __init__(
        self, config: SwitchConfig, json_path: Path, p4info_path: Path, context: DriverContext
    ) -> None:
        self.config = config
        self._context = context
        self.counters = SwitchCounters()
        self.last_error: str | None = None
        self._json_path, self._p4info_path = json_path, p4info_path
        self._state = State.PENDING
        self._switch: fy.Switch | None = None
        self._traffic: TrafficManager | None = None
        self.bid = context.leadership.election_id
        """Election id of the last connection."""
        self._below = 0
        """How far to bid below it: that many others are there already."""
        self._bid_for = self.bid
        """What `bid` was made of."""
        self._bid_again = asyncio.Event()
        self._changed = asyncio.Event()
        # What the switch held when it was last known; None on a new connection.
        self._held: Rows | None = None

    @property
    def state(self) -> State:
        """How the switch is doing."""
        return self._state

    @property
    def name(self) -> str:
        """The switch's name."""
        return self.config.name

    async def _ready(self, switch: fy.Switch) -> None:
        """Serve while primary (or backup); finsy cancels this when the role changes."""
        raise NotImplementedError

    def _set_state(self, state: State) -> None:
        if state is not self._state:
            _LOG.info("switch %s: %s", self.name, state.value)
            data = {"from": self._state.value, "to": state.value, "reason": self.last_error}
            self._state = state
            self._changed.set()
            self._changed = asyncio.Event()
            self._context.notify("switch-state", f"switch {self.name} is {state.value}", data)

    async def wait_for(self, state: State) -> None:
        """Wait until the switch is in that state."""
        while self._state is not state:
            await self._changed.wait()

    async def run(self) -> None:
        """Keep the switch connected and reconciled until cancelled."""
        task = asyncio.current_task()
        retry_s = RETRY_FIRST_S
        while True:
            errors.take_last_error(self.name)
            began = time.monotonic()
            refused = False
            try:
                await self._session()
            except asyncio.CancelledError:
                if task is not None and task.cancelling():
                    raise
                # finsy cancels its own connecting task when a later step fails; unless the
                # switch just went away, it says why (below).
            except fy.P4ClientError as error:
                if not errors.election_id_taken(error):
                    refused = not errors.gone(error)
                    self._note(errors.describe(error), refused)
            except TimeoutError:
                refused = True
                self._note(f"no answer within {CONNECT_S:g} s", refused)
            except Exception as error:
                # Whatever happens to one connection, the next one is tried.
                refused = True
                self._note_unexpected(error)
            finally:
                self._set_state(State.PENDING)
                self._switch = None
                self._held = None
                if self._traffic is not None:
                    await self._traffic.close()
                    self._traffic = None
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

    def _note(self, message: str, loud: bool) -> None:
        if loud or message != self.last_error:
            level = logging.ERROR if loud else logging.WARNING
            _LOG.log(level, "switch %s at %s: %s", self.name, self.config.address, message)
        self.last_error = message

    def _note_unexpected(self, error: BaseException) -> None:
        """Note what the switch said, or with its trace what went wrong here."""
        if isinstance(error, fy.P4ClientError):
            self._note(errors.describe(error), loud=True)
            return
        self._note(str(error) or type(error).__name__, loud=True)
        if not isinstance(error, (RuntimeError, OSError)):
            _LOG.error("switch %s: unexpected", self.name, exc_info=error)

    async def _session(self) -> None:
        """Connect once and stay until the connection breaks, or another election id is due."""
        self._bid_for = self._context.leadership.election_id
        self.bid = max(1, self._bid_for - self._below)
        address, credentials = endpoint(self.config.address, self._context.tls)
        options = fy.SwitchOptions(
            # finsy takes the message as well as the path.
            p4info=p4info(self._p4info_path),
            p4blob=self._json_path,
            device_id=self.config.device_id,
            initial_election_id=self.bid,
            ready_handler=self._ready,
            channel_credentials=credentials,
        )
        switch = fy.Switch(self.name, address, options)
        down = asyncio.Event()
        switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, lambda _: down.set())
        self._traffic = TrafficManager(address, credentials)
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_S):
                await stack.enter_async_context(switch)
            self._switch = switch
            self._below = 0
            self.counters.connects += 1
            ends = [asyncio.create_task(event.wait()) for event in (down, self._bid_again)]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                self.counters.disconnects += 1
