"""Calls to the other controller."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ASK_S = 1.0
"""Longest wait for an answer of a leader that is known to be there."""

COPY_S = 60.0
"""Longest wait for the whole state."""


class PeerGoneError(Exception):
    """The other controller did not answer; the text says how."""


class PeerNotLeadingError(Exception):
    """The other controller answered that it does not lead."""


class PeerRefusedError(Exception):
    """The other controller refuses to be followed; the text says why."""


@dataclass(frozen=True)
class PeerAddress:
    """Where the other controller is.

    Attributes:
        url: its address, `http://HOST:PORT` or `https://HOST:PORT`.
        token: bearer token of both; None: none.
        authority: PEM file of who signed its certificate; None: those the system trusts.

    """

    url: str
    token: str | None = None
    authority: Path | None = None


class Peer:
    """The other controller.

    Args:
        address: where it is.

    """

    def __init__(self, address: PeerAddress) -> None:
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        trusted = ssl.create_default_context(
            cafile=str(address.authority) if address.authority else None
        )
        self._http = httpx.AsyncClient(
            base_url=address.url, headers=headers, verify=trusted, trust_env=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _get(self, path: str, timeout_s: float, **query: str | int | bool) -> dict[str, Any]:
        try:
            answer = await self._http.get(path, params=query, timeout=timeout_s)
            said = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PeerGoneError(str(error) or type(error).__name__) from None
        if answer.status_code == httpx.codes.OK and isinstance(said, dict):
            return said
        if isinstance(said, dict) and str(said.get("type", "")).endswith(":not-leading"):
            raise PeerNotLeadingError
        detail = said.get("detail") if isinstance(said, dict) else None
        raise PeerRefusedError(f"{answer.status_code}: {detail or 'no reason given'}")

    async def status(self) -> dict[str, Any]:
        """Return what it says of its role.

        Raises:
            PeerGoneError, PeerRefusedError: no answer, or none of use.

        """
        return await self._get("/v1/replication", ASK_S)

    async def feed(self, follower: str, epoch: int, after: int, timeout_s: float) -> dict[str, Any]:
        """Return what comes after a write, or everything.

        Raises:
            PeerGoneError, PeerNotLeadingError, PeerRefusedError: nothing.

        """
        place = {"epoch": epoch, "after": after}
        return await self._get("/v1/replication/feed", timeout_s, follower=follower, **place)

    async def leave(self, follower: str) -> None:
        """Tell it that this controller stops following.

        Raises:
            PeerGoneError, PeerNotLeadingError, PeerRefusedError: it was not told.

        """
        place = {"epoch": 0, "after": 0}
        path = "/v1/replication/feed"
        await self._get(path, ASK_S, follower=follower, leaving=True, **place)
