"""The controller's notifications to systemd."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from pacer_controller import service_manager

LIMIT_S = 5


def test_ready_alive_and_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "3000")

        async def serve() -> list[bytes]:
            async with service_manager.told():
                return [await asyncio.to_thread(systemd.recv, 100) for _ in range(4)]

        heard = asyncio.run(serve())
        assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        rest = [systemd.recv(100)]
        while rest[-1] != b"STOPPING=1":
            rest.append(systemd.recv(100))
        assert set(rest[:-1]) <= {b"WATCHDOG=1"}


def test_nobody_listens(tmp_path: Path) -> None:
    for address in ("", "relative", str(tmp_path / "nothing"), "@nobody-has-this-name"):
        service_manager.notify("READY=1", {"NOTIFY_SOCKET": address})
    assert service_manager.watchdog_s({}) is None
    of_another = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid() + 1)}
    assert service_manager.watchdog_s(of_another) is None
    assert service_manager.watchdog_s({"WATCHDOG_USEC": "1500000"}) == 1.5
