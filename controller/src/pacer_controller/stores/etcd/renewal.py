"""The lease of this controller: granted by etcd, and renewed until the controller stops.

It runs in a thread with an event loop and a connection to etcd of its own. So a controller that is
busy keeps its lease. It may write while the term is valid by the clock of the writer, at each
write: a renewal that is late makes it stop.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
from pacer_controller.stores.etcd.outage import Outage

_LOG = logging.getLogger(__name__)

MARGIN_S = 0.5
"""Time before the possible end of its lease at which a controller stops writing, in seconds.

It allows for calls that are under way, and for clocks whose rates differ by up to a sixth.
"""

RENEWALS = 4
"""Renewals in the time of a lease."""

RETRY_S = 0.1

STUCK_S = 20.0
"""Time without a sign of life of the controller's event loop after which its lease is not renewed.

Others then drive its switches.
"""


@dataclass(frozen=True)
class Term:
    """A lease, and the time for which it is known to be valid.

    Attributes:
        lease: the id of the lease; 0: there is none.
        until_s: the time at which it may end, by the clock of `Renewal`, less the margin.

    """

    lease: int = 0
    until_s: float = float("-inf")


class Renewal:
    """Holds a lease.

    Args:
        client: a client of the etcd cluster that nothing else uses.
        lease_s: the time to live of the lease, in seconds.
        clock: a monotonic clock that counts the time of a suspend, in seconds.
        changed: called, in this thread, when there is another lease, or the term is valid again
            after it was not.

    Attributes:
        term: the present term. Any thread may read it.
        alive_s: the time of the last sign of life of the controller's event loop, which that loop
            writes.

    """

    def __init__(
        self,
        client: EtcdClient,
        lease_s: int,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._lease_s = lease_s
        self._clock = clock
        self._changed = changed
        self._outage = Outage(_LOG, "the renewal of the lease")
        self.term = Term()
        self.alive_s = clock()

    async def keep(self) -> None:
        """Hold a lease until cancelled: renew it, and request a new one when it has ended."""
        try:
            while True:
                pause_s = await self._keep_once()
                await asyncio.sleep(pause_s)
        finally:
            await self._client.close()

    async def _keep_once(self) -> float:
        """Renew the lease, or request one; return the time until the next renewal, in seconds."""
        try:
            silent_s = self._clock() - self.alive_s
            if silent_s > STUCK_S:
                _LOG.error("the event loop stands still for %.0f s: no renewal", silent_s)
                return self._lease_s / RENEWALS
            asked_s = self._clock()
            lease = self.term.lease
            if lease:
                ttl_s = await self._client.keep_alive(lease, self._lease_s / RENEWALS)
            else:
                lease, ttl_s = await self._client.grant(self._lease_s), self._lease_s
            self._outage.over()
            if ttl_s > 0:
                self._enter(Term(lease, asked_s + ttl_s - MARGIN_S))
                return self._lease_s / RENEWALS
            _LOG.warning("the lease of this controller has ended: others may drive its switches")
            self._enter(Term())
        except (EtcdError, OSError) as error:
            self._outage.failed(error)
        except Exception:
            # The loop must go on: without a lease this controller drives no switch.
            _LOG.exception("the lease could not be kept")
        return RETRY_S

    def _enter(self, term: Term) -> None:
        before, self.term = self.term, term
        if term.lease != before.lease or self._clock() >= before.until_s:
            self._changed()
