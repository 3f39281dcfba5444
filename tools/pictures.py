#!/usr/bin/env python3
"""Makes docs/dashboard.png and docs/top.svg: a paced and an unpaced class on a long fat network.

    sudo build/venv/bin/python tools/pictures.py [--seconds 75] [--out docs]

Run it as root on an idle machine: the network of mininet/lfn.py (500 Mbit/s, 200 ms) runs in real
time. It needs Chromium, iperf and a free TCP port 8080 of 127.0.0.1. Headless Chromium draws the
dashboard; `pacer top` is drawn as SVG. Chromium starts when the network has run for its minute, off
the processor of the pacing switch and with a lower priority than the hosts, so drawing leaves the
rates as they are.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "mininet"))

from pacer_controller.cli import top  # noqa: E402
from pacer_controller.cli.session import Session  # noqa: E402
from pacer_mininet import processors  # noqa: E402
from pacer_mininet.controller import PacerController  # noqa: E402
from pacer_mininet.net import started  # noqa: E402
from pacer_mininet.topology import LfnTopo  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from rich.console import Console  # noqa: E402

CLASSES: dict[str, tuple[dict[str, str], int]] = {
    "unpaced": ({"mode": "unpaced"}, 5002),
    "paced": ({"rate": "100Mbit"}, 5001),
    "voice": ({"rate": "64kbit"}, 5003),
}
"""Classes by name, and the TCP port of their flow; the last one stays idle."""

START_S = 5.0
"""Time between two starts: the losses of the unpaced slow start are not to hit the paced flow."""

WIDTH, HEIGHT = 1280, 1250
TERMINAL_COLUMNS = 132
FONT_FACE = re.compile(r"\s*@font-face \{[^}]*\}")
TIMEOUT_MS = 180_000


def offer_traffic(net: Any) -> list[subprocess.Popen[bytes]]:
    """Start an iperf pair for each class but the idle one; they run until they are stopped."""
    sender, receiver = net.get("h1"), net.get("h2")
    processes = []
    for _, port in list(CLASSES.values())[:2]:
        common = ["-p", str(port), "-w", "12M"]
        send = ["iperf", "-c", receiver.IP(), *common, "-Z", "cubic", "-P", "4", "-t", "3600"]
        for host, command in ((receiver, ["iperf", "-s", *common]), (sender, send)):
            processes.append(
                host.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            time.sleep(0.5)  # A server listens by then, and each has its session.
            processors.prefer(processes[-1].pid)
        time.sleep(START_S)
    return processes


def draw_dashboard(url: str, path: Path) -> None:
    """Save the page as it looks after some seconds."""
    with sync_playwright() as playwright:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=options)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=2)
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"{url}/dashboard/#s1")
        page.locator('#link[data-state="live"]').wait_for()
        time.sleep(6)
        page.screenshot(path=path)
        browser.close()


def draw_top(url: str, path: Path) -> None:
    """Save the screen of `pacer top` after its history is full."""
    session = Session()
    session.url = url
    screen = top.Screen(url)
    for measured in top.samples(session, "s1", 1000, top.HISTORY + 1):
        screen.take(measured)
    session.close()
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=TERMINAL_COLUMNS, file=nowhere, force_terminal=True, highlight=False
        )
        console.print(screen.draw(console))
        drawn = console.export_svg(title="pacer top")
    # A picture in a page may load no fonts: browsers use the next font of the list.
    path.write_text(FONT_FACE.sub("", drawn), encoding="utf-8")


def main() -> None:
    """Build the network, wait, and draw both pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="traffic before the pictures")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pictures")
    options = parser.parse_args()
    # The page shall show the minute before it was opened.
    PacerController.service_options = ()
    processors.reserve_one()
    with started(LfnTopo()) as net:
        rest = net.controllers[0].rest
        for name, (spec, port) in CLASSES.items():
            rest.put("switches", "s1", "classes", name, body=spec)
            match = {"protocol": "tcp", "dst_port": port}
            rest.put("switches", "s1", "flows", name, body={"match": match, "class": name})
        url = f"http://127.0.0.1:{net.controllers[0].port}"
        processes = offer_traffic(net)
        try:
            time.sleep(options.seconds)
            draw_top(url, options.out / "top.svg")
            os.nice(19)
            draw_dashboard(url, options.out / "dashboard.png")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    print(f"pictures: {options.out / 'dashboard.png'}, {options.out / 'top.svg'}")


if __name__ == "__main__":
    main()
