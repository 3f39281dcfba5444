"""Failures of repeated calls to etcd in the log: the first of them, and that they are over."""

import logging


class Outage:
    """Logs the begin and the end of an outage, and each failure between them at level debug only.

    Calls are repeated several times a second. A line for each would fill the log.

    Args:
        log: the log.
        name: the name of the calls in messages.

    """

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._failures = 0

    def failed(self, error: Exception) -> None:
        """Count a failed call."""
        level = logging.DEBUG if self._failures else logging.WARNING
        self._failures += 1
        self._log.log(level, "%s: %s", self._name, error)

    def over(self) -> None:
        """Say that calls succeed, if the one before failed."""
        if self._failures:
            self._log.info("%s: etcd answers again, after %d failures", self._name, self._failures)
        self._failures = 0
