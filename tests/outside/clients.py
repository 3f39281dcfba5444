"""Clients of the controllers: each writes, deletes and reads classes, and notes the answers."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from history import Call, History, Kind

TIMEOUT_S = 3.0
PAUSE_S = 0.05
"""Mean time between two calls of a client."""

RATE_MIN_BPS = 1_000_000

CERTAINLY_NOT_MADE = {400, 401, 403, 404, 409, 412, 413, 415, 422, 428, 429}
"""Statuses of a write that changed nothing. After 500 or more, the write may have been made."""


@dataclass(frozen=True)
class Target:
    """The target of the clients' writes.

    Attributes:
        controllers: the URLs of the controllers.
        token: the token of the REST interface.
        switches: the names of the switches.
        classes: the number of classes of each switch.

    """

    controllers: Sequence[str]
    token: str
    switches: Sequence[str]
    classes: int


class Client:
    """One client. Every value that it writes is unique, so a read tells which write it saw."""

    def __init__(self, number: int, target: Target, history: History, seed: int) -> None:
        self._number = number
        self._target = target
        self._history = history
        self._random = random.Random(f"{seed}-{number}")
        self._values = (
            RATE_MIN_BPS + 1000 * number + count * 1_000_000 for count in itertools.count()
        )

    async def run(self, until: asyncio.Event) -> None:
        """Make calls until the event is set."""
        headers = {"Authorization": f"Bearer {self._target.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
            while not until.is_set():
                await self._call(http)
                await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))

    async def _call(self, http: httpx.AsyncClient) -> None:
        chosen = self._random
        switch = chosen.choice(self._target.switches)
        name = f"c{chosen.randrange(self._target.classes)}"
        url = f"{chosen.choice(self._target.controllers)}/v1/switches/{switch}/classes/{name}"
        kind: Kind = chosen.choices(("write", "read", "delete"), (6, 3, 1))[0]
        value = str(next(self._values)) if kind == "write" else None
        call = self._history.begin(self._number, f"{switch}/{name}", kind, value)
        try:
            if kind == "write":
                answer = await http.put(url, json={"rate": int(value or 0)})
            elif kind == "delete":
                answer = await http.delete(url)
            else:
                answer = await http.get(url)
        except httpx.ConnectError:
            self._history.refuse(call)
            return
        except httpx.HTTPError:
            self._history.end(call, "unknown")
            return
        self._note(call, answer)

    def _note(self, call: Call, answer: httpx.Response) -> None:
        status = answer.status_code
        if call.kind == "read":
            note_read(self._history, call, answer)
        elif status < 300:
            self._history.end(call, "done")
        elif call.kind == "delete" and status == 404:
            # Nothing was there to delete, which counts as a read of absence.
            call.kind = "read"
            self._history.end(call, "done", None)
        elif status in CERTAINLY_NOT_MADE:
            self._history.refuse(call)
        else:
            self._history.end(call, "unknown")


def note_read(history: History, call: Call, answer: httpx.Response) -> bool:
    """Note the answer to a read; return whether it tells the class."""
    if answer.status_code == 200:
        history.end(call, "done", str(answer.json()["rate_bps"]))
    elif answer.status_code == 404:
        history.end(call, "done", None)
    return answer.status_code in (200, 404)
