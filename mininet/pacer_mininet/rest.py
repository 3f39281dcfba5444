"""A small client of the controller's REST interface.

It uses the standard library only: `mn` runs in Debian's python3, outside any virtual environment.
"""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

TIMEOUT_S = 60.0
POLL_S = 0.05


INVALID = 422
"""HTTP status of a request with values that the controller refuses."""


class ControllerError(RuntimeError):
    """The controller refused a request or does not answer; the text names request and reason.

    `status` is the answer's HTTP status, None without an answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RestClient:
    """A client of one controller; every call makes its own connection."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Make one request and return the decoded answer, None if it is empty.

        Raises:
            ControllerError: the status is 400 or more; the text has the problem (RFC 9457).
            OSError: there is no connection.

        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            headers = {"Accept": "application/json"}
            data = None
            if body is not None:
                data = json.dumps(body)
                headers["Content-Type"] = "application/json"
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ControllerError(f"{method} {path}: not an HTTP answer: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            message = f"{method} {path}: {response.status} {text}"
            raise ControllerError(message, response.status)
        return json.loads(text) if text else None

    def get(self, *path: str, **query: object) -> Any:
        """GET a resource, given by the parts of its path below /v1."""
        suffix = f"?{urlencode(query)}" if query else ""
        return self.request("GET", _path(path) + suffix)

    def put(self, *path: str, body: object) -> Any:
        """PUT a resource, given by the parts of its path below /v1."""
        return self.request("PUT", _path(path), body)

    def refusal(self, method: str, *path: str, body: object) -> str | None:
        """Make a request; return the problem if the controller refuses its values, else None.

        Raises:
            ControllerError: any other status of 400 or more.

        """
        try:
            self.request(method, _path(path), body)
        except ControllerError as error:
            if error.status == INVALID:
                return str(error)
            raise
        return None

    def wait_until(self, ready: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Poll until `ready` returns True; ControllerError with `what` when that takes too long."""
        deadline = time.monotonic() + timeout_s
        last = "not ready"
        while True:
            try:
                if ready():
                    return
            except (OSError, ControllerError) as error:
                last = str(error)
            if time.monotonic() > deadline:
                raise ControllerError(f"{what} after {timeout_s:.0f} s: {last}")
            time.sleep(POLL_S)


def _path(parts: tuple[str, ...]) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
