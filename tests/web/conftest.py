"""Fixtures: a browser without a screen, and the controller tests' switch, wires and controller.

The browser is Debian's Chromium, driven by Playwright; where there is none, the tests are skipped
by name.
"""

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

CONTROLLER_TESTS = Path(__file__).resolve().parents[1] / "controller"
sys.path.insert(0, str(CONTROLLER_TESTS.parent / "common"))
sys.path.insert(0, str(CONTROLLER_TESTS))

from controller_harness import Controller, Network  # noqa: E402
from traffic import Traffic  # noqa: E402

_spec = importlib.util.spec_from_file_location(
    "controller_conftest", CONTROLLER_TESTS / "conftest.py"
)
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)

network = _shared.network
wires = _shared.wires
switch = _shared.switch
start_controller = _shared.start_controller
controller = _shared.controller

_CHROMIUM_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser(network: Network) -> Iterator[Browser]:
    """Run one browser, inside the tests' network namespace: there is no other network in it."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("not run: no chromium")
    expect.set_options(timeout=60_000)  # a busy machine must not fail the test
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_CHROMIUM_OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages; at the end, none may have failed or asked another host for anything."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(url) else faults.append(f"asked {request.url}")
            ),
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def traffic(wires: Network, controller: Controller) -> Iterator[None]:
    """Offer 4 Mbit/s of UDP to port 5001, from port 1 of s1 to port 2."""
    sender, receiver = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
    # Once it has been heard, packets to the receiver go to port 2 only.
    wires.send(2, (sender + receiver + b"\x88\xb5").ljust(60, b"\0"))
    ipv4 = bytes.fromhex("450003da00004000401100000a0000010a000101")
    ports = (40000).to_bytes(2, "big") + (5001).to_bytes(2, "big") + bytes.fromhex("03c60000")
    frame = (receiver + sender + b"\x08\x00" + ipv4 + ports).ljust(1000, b"\0")
    running = Traffic(wires.ports[1], frame)
    yield
    running.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were not run, with the reasons, at the end of the report."""
    reasons = {
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)
