"""One connection to the controller's REST interface, and its errors in a user's words."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from pacer_controller.addresses import is_loopback

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 90.0
"""Longest silence of a working stream, whose longest interval is 60 s."""
MAX_PAGES = 100_000
"""Most pages that are read, in case a server always names a next page."""

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3


class ClientError(Exception):
    """An error for the user; `problem` is the same for programs.

    Attributes:
        problem: problem details (RFC 9457), from the controller or made here.
        exit_status: the exit status of the command.

    """

    def __init__(self, problem: Mapping[str, Any], exit_status: int) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or "failed"))
        self.problem = dict(problem)
        self.exit_status = exit_status

    @property
    def status(self) -> int:
        """HTTP status of the controller's answer; 0 when there was none."""
        return int(self.problem.get("status", 0))


class RefusedError(ClientError):
    """The controller answered with an error."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem, EXIT_REFUSED)


class UnreachableError(ClientError):
    """The controller did not answer."""

    def __init__(self, detail: str) -> None:
        problem = {"type": "urn:pacer:problem:unreachable", "title": "No answer", "detail": detail}
        super().__init__(problem, EXIT_UNREACHABLE)


class UsageError(ClientError):
    """The command line is wrong; found before anything was sent."""

    def __init__(self, detail: str) -> None:
        problem = {"type": "urn:pacer:problem:usage", "title": "Not understood", "detail": detail}
        super().__init__(problem, EXIT_USAGE)


def path(*parts: str) -> str:
    """Return the path below /v1 of the given parts, each taken literally.

    Raises:
        UsageError: one is empty, as an unset variable of a shell is, or has a slash, which the
            controller would take for the end of the name.

    """
    if not all(parts):
        raise UsageError("the name is empty")
    for part in parts:
        if "/" in part:
            raise UsageError(f"{part!r} is no name: want A-Z a-z 0-9 . _ -")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Connection:
    """Requests to one controller.

    Args:
        url: the controller's address, such as `http://127.0.0.1:8080`.
        token: bearer token; None: none is sent.
        authority: file of certificates to trust instead of the system's.

    Raises:
        UsageError: no usable address, or no such file.

    """

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, authority: str | None = None
    ) -> None:
        self.url = url.rstrip("/")
        parsed = urlsplit(self.url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname:
            raise UsageError(f"--url {url!r}: want an address such as {DEFAULT_URL}")
        self._host = parsed.hostname
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise UsageError("PACER_TOKEN has characters that no token has")
        if token and parsed.scheme == "http" and not is_loopback(parsed.hostname):
            raise UsageError(
                f"--url {url}: PACER_TOKEN would be sent in clear over the network: use https://"
            )
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            verify=_trust(authority),
            # A proxy named in the environment cannot reach this machine's loopback.
            trust_env=not is_loopback(self._host),
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an error of the transport into a ClientError."""
        try:
            yield
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise UnreachableError(
                    f"{self.url}: its certificate is not trusted; name the authority that made it "
                    "with --ca FILE"
                ) from None
            if "WRONG_VERSION_NUMBER" in str(error):
                raise UnreachableError(
                    f"{self.url}: the controller does not speak TLS: use http://"
                ) from None
            raise UnreachableError(
                f"no controller at {self.url} ({_reason(error)}); start pacer-controller, or say "
                "where it is with --url or PACER_URL"
            ) from None
        except httpx.TimeoutException:
            raise UnreachableError(f"the controller at {self.url} did not answer in time") from None
        except httpx.RemoteProtocolError as error:
            hint = "; if it speaks TLS, use https://" if self.url.startswith("http:") else ""
            raise UnreachableError(
                f"the controller at {self.url}: {_reason(error)}{hint}"
            ) from None
        except httpx.HTTPError as error:
            raise UnreachableError(f"the controller at {self.url}: {_reason(error)}") from None

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> httpx.Response:
        """Make one request and return the answer, which is no error.

        Raises:
            RefusedError: the controller answered with an error.
            UnreachableError: it did not answer.

        """
        content = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        with self._told():
            response = self._http.request(
                method, path, content=content, headers=sent, params=dict(query or {}) or None
            )
        if response.is_error:
            raise RefusedError(_problem(response))
        return response

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """GET a resource."""
        return _decoded(self.request("GET", path, query=query))

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str | int] | None = None) -> Iterator[Any]:
        """Give the server-sent events of a path, as they come, as (event, data) pairs.

        Raises:
            RefusedError: the controller answered with an error.
            UnreachableError: it did not answer, or the stream broke off.

        """
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=SILENCE_S)
        headers = {"Accept": "text/event-stream"}
        with (
            self._told(),
            self._http.stream(
                "GET", path, headers=headers, params=dict(query or {}) or None, timeout=timeout
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise RefusedError(_problem(response))
            yield _events(response.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Read server-sent events; events whose data is no JSON are left out."""
    kind, data = "message", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                try:
                    decoded = json.loads("\n".join(data))
                except ValueError:
                    decoded = None
                if decoded is not None:
                    yield kind, decoded
            kind, data = "message", []
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)


def _trust(authority: str | None) -> ssl.SSLContext | bool:
    if authority is None:
        return True
    if not Path(authority).is_file():
        raise UsageError(f"--ca {authority}: no such file")
    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise UsageError(f"--ca {authority}: not a file of certificates (PEM)") from None


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.partition("] ")[2] or text


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json() if response.content else None
    except ValueError:
        raise UnreachableError(f"{response.url} answers, but not as a controller does") from None


def _problem(response: httpx.Response) -> dict[str, Any]:
    """Return the problem details of an error, made up where the answer has none."""
    try:
        body = response.json()
    except ValueError:
        body = None
    made = {
        "type": "about:blank",
        "title": response.reason_phrase,
        "status": response.status_code,
        "detail": f"{response.request.method} {response.url.path}: "
        f"{response.status_code} {response.reason_phrase}",
    }
    if isinstance(body, dict) and "title" in body:
        made |= body
    if response.status_code == 401:
        sent = "Authorization" in response.request.headers
        made["detail"] = (
            "the controller knows no user with the token in PACER_TOKEN"
            if sent
            else "the controller wants a token: set PACER_TOKEN"
        ) + "; `pacer-controller token add` makes one"
    return made
