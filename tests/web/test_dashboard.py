"""The dashboard in a browser: a real switch, real packets, a controller that may go away."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from controller_harness import Controller, Network, Switch, eventually, free_port
from traffic import Traffic

VIDEO = "/v1/switches/s1/classes/video"
FLOW = "/v1/switches/s1/flows/udp"
MATCH = {"protocol": "udp", "dst_port": 5001}

Open = Callable[..., Page]
Start = Callable[..., Controller]


def make_class(controller: Controller, rate: str = "2Mbit") -> None:
    assert controller.put(VIDEO, {"rate": rate, "limit_bytes": 65536}).status_code == 201
    assert controller.put(FLOW, {"match": MATCH, "class": "video"}).status_code == 201


def card(page: Page, name: str = "video") -> Locator:
    return page.locator(f'[data-class="{name}"]')


def achieved_bps(page: Page) -> float:
    """Return the rate that the card of "video" shows in large."""
    scale = {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
    unit = card(page).locator(".unit").inner_text()
    number = card(page).locator(".number").inner_text()
    return float(number) * scale[unit] if unit else 0.0


def wait_live(page: Page) -> None:
    expect(page.locator("#link")).to_have_attribute("data-state", "live")


def test_the_root_leads_to_it_and_it_needs_no_other_host(
    controller: Controller, open_page: Open
) -> None:
    make_class(controller)
    page = open_page(controller.url)
    assert page.url.startswith(f"{controller.url}/dashboard/")
    wait_live(page)
    expect(card(page).locator("h3")).to_have_text("video")
    expect(card(page).locator(".headline .target")).to_have_text("of 2\u202fMbit/s")
    expect(page.locator("#switches button")).to_have_text(["s1"])


def test_its_files_are_only_its_own(controller: Controller) -> None:
    answer = controller.http.get("/dashboard/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for name in ("nothing.js", "..%2f__init__.py", "__init__.py", ".."):
        assert controller.http.get(f"/dashboard/{name}").status_code in (404, 307), name


def test_a_file_that_did_not_change_is_not_sent_again(controller: Controller) -> None:
    first = controller.http.get("/dashboard/main.js")
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/javascript")
    again = controller.http.get(
        "/dashboard/main.js", headers={"If-None-Match": first.headers["etag"]}
    )
    assert again.status_code == 304


@pytest.mark.usefixtures("traffic")
def test_shows_a_live_rate_and_the_slider_changes_it(
    controller: Controller, open_page: Open
) -> None:
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    eventually(lambda: 1e6 < achieved_bps(page) < 2.2e6, "about 2 Mbit/s is shown")
    expect(page.locator('[data-port="2"] .use').first).to_contain_text("Mbit/s")
    for measured in ("Lateness", "Gaps between frames"):
        expect(page.locator('[data-port="2"] .panel', has_text=measured)).to_be_visible()
    expect(page.locator(".tile", has_text="Lateness")).to_contain_text("99")

    slider = card(page).get_by_role("slider")
    slider.focus()
    slider.press("PageDown")
    new_bps = eventually(
        lambda: (
            rate if (rate := controller.get(VIDEO)["rate_bps"]) not in (None, 2_000_000) else None
        ),
        "the controller has another rate",
    )
    assert new_bps < 2_000_000
    assert controller.get(VIDEO)["limit_bytes"] == 65536
    expect(card(page).locator(".headline .target")).not_to_have_text("of 2\u202fMbit/s")
    eventually(lambda: 0.3 * new_bps < achieved_bps(page) < 1.1 * new_bps, f"about {new_bps} bit/s")
    expect(card(page).locator(".facts")).to_contain_text("/s")


def test_a_rate_can_be_typed_and_a_wrong_one_is_explained(
    controller: Controller, open_page: Open
) -> None:
    make_class(controller)
    page = open_page(controller.url)
    field = card(page).get_by_role("textbox")
    field.fill("fast")
    field.press("Enter")
    expect(card(page).get_by_role("alert")).to_contain_text("'fast' is not a rate")
    assert controller.get(VIDEO)["rate"] == "2Mbit"
    field.fill("12.5MB/s")
    field.press("Enter")
    expect(card(page).get_by_role("alert")).to_be_hidden()
    expect(card(page).locator(".headline .target")).to_have_text("of 100\u202fMbit/s")
    assert controller.get(VIDEO)["rate_bps"] == 100_000_000


def test_a_slider_goes_back_after_a_refusal(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    page = open_page(controller.url)
    slider = card(page).get_by_role("slider")
    before = slider.input_value()
    field = card(page).get_by_role("textbox")
    field.fill("500Gbit")
    field.press("Enter")
    expect(card(page).get_by_role("alert")).to_contain_text("rate")
    expect(slider).to_have_value(before)


def test_a_class_is_added_with_its_flow_and_deleted(
    controller: Controller, open_page: Open
) -> None:
    page = open_page(controller.url)
    wait_live(page)
    page.get_by_text("Add a class").click()
    page.get_by_label("Class", exact=True).fill("video")
    page.get_by_label("Rate", exact=True).fill("5Mbit")
    page.get_by_label("to port").fill("5001")
    page.get_by_label("Packets of").select_option("udp")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(card(page)).to_be_visible()
    flow = controller.get("/v1/switches/s1/flows/video")
    assert (flow["class"], flow["match"]) == ("video", MATCH)
    delete = page.get_by_role("button", name="Delete class video")
    delete.click()
    expect(delete).to_have_text("Delete?")
    delete.click()
    expect(card(page)).to_have_count(0)
    assert controller.get("/v1/switches/s1/flows")["flows"] == []


def test_the_minute_before_it_was_opened_is_shown(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    path = "/v1/switches/s1/stats/history"
    eventually(
        lambda: [len(one["points"]) > 1 for one in controller.get(path)["classes"]] == [True],
        "the controller has kept two readings",
    )
    page = open_page(controller.url)
    wait_live(page)
    # Two readings and more before the page was there make a line, and not a dot.
    expect(card(page).locator(".chart-line.target")).to_have_attribute(
        "d", re.compile(r"H[0-9.]+V[0-9.]+.*H")
    )


@pytest.mark.parametrize("spec", [{"rate": "2Mbit"}, {"mode": "unpaced"}], ids=["rate", "unpaced"])
def test_the_minute_before_is_shown_if_it_arrives_after_statistics(
    controller: Controller, open_page: Open, spec: dict[str, str]
) -> None:
    controller.put(VIDEO, spec)
    controller.put(FLOW, {"match": MATCH, "class": "video"})
    page = open_page(controller.url)
    wait_live(page)
    held: list[Route] = []
    page.route("**/stats/history", lambda route: held.append(route))
    page.reload()
    line = card(page).locator(".chart-line.area")
    expect(line).to_have_attribute("d", re.compile(r"^M[^M]+$"))
    points = [[age_s, 1_000_000, None] for age_s in (50.0, 48.0)]
    classes = [{"kind": "class", "name": "video", "points": points}]
    held[-1].fulfill(json={"switch": "s1", "overdue": 0, "classes": classes})
    # A line between the two points, and then that of the points since the page was opened.
    expect(line).to_have_attribute("d", re.compile(r"^M[^M]+L[^M]+M"))


def test_a_change_by_somebody_else_is_shown(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    page = open_page(controller.url)
    expect(card(page).get_by_role("textbox")).to_have_value("2Mbit")
    controller.put(VIDEO, {"rate": "7Mbit"})
    expect(card(page).get_by_role("textbox")).to_have_value("7Mbit")
    controller.put("/v1/switches/s1/classes/second", {"rate": "1Mbit"})
    expect(card(page, "second")).to_be_visible()


def test_a_flow_with_a_rate_of_its_own_keeps_its_match(
    controller: Controller, open_page: Open
) -> None:
    controller.put(FLOW, {"match": MATCH, "rate": "64kbit", "priority": 7})
    page = open_page(controller.url)
    field = card(page, "udp").get_by_role("textbox")
    expect(field).to_have_value("64kbit")
    field.fill("128kbit")
    field.press("Enter")
    eventually(lambda: controller.get(FLOW)["rate"] == "128kbit", "the flow's rate is changed")
    flow = controller.get(FLOW)
    assert (flow["match"], flow["priority"]) == (MATCH, 7)


def test_a_class_keeps_what_its_rate_follows_and_its_other_settings(
    controller: Controller, open_page: Open
) -> None:
    wan = {"address": f"127.0.0.1:{free_port()}", "program": "gtrcnet", "wire": ["1:2"]}
    made = controller.put("/v1/switches/wan", {**wan, "bottleneck": "500Mbit"})
    assert made.status_code == 201, made.text
    follow = {"switch": "wan", "port": 1, "fifo_bytes": 65_536}
    settings = {
        "mode": "timer",
        "tick_hz": 100,
        "limit_bytes": 65_536,
        "ecn_threshold_bytes": 9_000,
        "follow": {**follow, "least_rate": "1Mbit", "most_rate": "9Mbit"},
    }
    assert controller.put(VIDEO, {**settings, "rate": "2Mbit"}).status_code == 201
    page = open_page(controller.url)
    field = card(page).get_by_role("textbox")
    expect(field).to_have_value("2Mbit")
    field.fill("3Mbit")
    field.press("Enter")
    eventually(lambda: controller.get(VIDEO)["rate"] == "3Mbit", "the class's rate is changed")
    video = controller.get(VIDEO)
    assert {name: video[name] for name in settings} == settings


def test_survives_a_restart_of_the_controller(
    switch: Switch, start_controller: Start, open_page: Open, tmp_path: Path
) -> None:
    options = (
        *("--listen", f"127.0.0.1:{free_port()}", "--state", f"{tmp_path}/state.sqlite"),
        *("--switch", f"s1={switch.address}{switch.options}"),
    )
    controller = start_controller(*options)
    controller.wait_connected()
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    expect(card(page)).to_be_visible()
    page.evaluate("window.sameDocument = true")

    controller.process.kill()
    expect(page.locator("#link")).to_have_attribute("data-state", "away")
    expect(card(page)).to_be_visible()
    controller = start_controller(*options)
    controller.wait_connected()
    wait_live(page)
    assert page.evaluate("window.sameDocument")

    field = card(page).get_by_role("textbox")
    field.fill("3Mbit")
    field.press("Enter")
    expect(card(page).locator(".headline .target")).to_have_text("of 3\u202fMbit/s")
    eventually(lambda: controller.get(VIDEO)["rate"] == "3Mbit", "the restarted controller has it")


def test_an_answer_that_breaks_off_is_none(controller: Controller, open_page: Open) -> None:
    """The head of an answer came, and then the controller went: said like any other absence."""
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    page.evaluate(
        """() => {
            const whole = window.fetch;
            window.fetch = async (path, ...rest) => {
                const response = await whole(path, ...rest);
                if (path.endsWith("/classes/video"))
                    response.text = async () => { throw new TypeError("Failed to fetch"); };
                return response;
            };
        }"""
    )
    field = card(page).get_by_role("textbox")
    field.fill("3Mbit")
    field.press("Enter")
    expect(card(page)).to_contain_text("the controller does not answer")
    assert controller.get(VIDEO)["rate"] == "2Mbit"


def test_says_when_the_switch_is_away(
    controller: Controller, switch: Switch, open_page: Open
) -> None:
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    expect(page.locator("#notice")).to_be_hidden()
    switch.kill()
    expect(page.locator("#notice")).to_contain_text("s1 is unreachable")
    field = card(page).get_by_role("textbox")
    field.fill("5Mbit")
    field.press("Enter")
    expect(card(page).locator(".chip.bad")).to_have_text("pending", timeout=30_000)
    switch.start()
    expect(page.locator("#notice")).to_be_hidden()


def test_asks_for_the_token_and_keeps_it(
    switch: Switch, start_controller: Start, open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("0123456789abcdef")
    controller = start_controller(
        *("--token-file", str(file), "--switch", f"s1={switch.address}{switch.options}")
    )
    assert controller.http.get("/v1/switches").status_code == 401
    page = open_page(controller.url)
    field = page.get_by_label("This controller wants a token")
    unknown = page.get_by_text("No user of this controller has this token.")
    expect(unknown).to_be_hidden()
    field.fill("wrong")
    field.press("Enter")
    expect(page.locator("#link")).to_have_attribute("data-state", "token")
    expect(unknown).to_be_visible()
    expect(field).to_be_visible()
    field.fill("0123456789abcdef")
    field.press("Enter")
    wait_live(page)
    expect(field).to_be_hidden()
    page.reload()
    wait_live(page)


def test_shows_the_virtual_bottleneck(
    wires: Network, switch: Switch, start_controller: Start, open_page: Open
) -> None:
    options = f"{switch.address},program=gtrcnet,wire=1:2,bottleneck=8mbit"
    controller = start_controller("--switch", f"wan={options}")
    controller.wait_connected("wan")
    running = Traffic(wires.ports[1], bytes(12) + b"\x88\xb5" + bytes(986))
    page = open_page(controller.url)
    shown = page.locator('[data-bottleneck="wan port 1"]')
    expect(shown.locator(".headline .target")).to_have_text("of 8\u202fMbit/s")
    expect(shown.locator(".headline .unit")).to_have_text("Mbit/s")
    # Bursts of four packets on a line of twice their rate: three and more had to wait.
    expect(shown.get_by_role("img").nth(1)).to_have_attribute(
        "aria-label", re.compile(r"Virtual queue at wan port 1: [1-9]")
    )
    running.stop()


def test_shows_the_egress_queues_of_a_port(
    wires: Network, start_controller: Start, open_page: Open
) -> None:
    """The program chooses no priority, so all packets are in queue 0; more come than it holds."""
    queueing = Switch(wires, {2: "rate=1mbit,queues=3,scheduler=wfq:4:2:1,q0.packets=5"})
    queueing.start()
    try:
        controller = start_controller("--switch", f"s1={queueing.address}{queueing.options}")
        controller.wait_connected()
        running = Traffic(wires.ports[1], bytes(12) + b"\x88\xb5" + bytes(986))
        page = open_page(controller.url)
        table = page.get_by_role("table", name="Egress queues of port 2")
        expect(table.locator("tbody th")).to_have_text(["0"])
        expect(table.locator(".lost")).to_have_text(re.compile(r"Lost: [1-9].* queue-full"))
        # Five packets of 8.1 ms each wait in front, and one is on the line. A quantile is shown as
        # the next power of two (67.1 ms) or the longest time, which grows when the switch stalls.
        expect(table.locator(".half")).to_have_text(re.compile(r"(4\d|5\d|6[0-7])\.\d\u202fms"))
        expect(table.locator(".most")).to_have_text(re.compile(r"([4-9]\d|\d{3,})\.\d\u202fms"))
        expect(page.locator('[data-port="2"] .queues h4')).to_have_text(re.compile("1 had packets"))
        assert page.get_by_role("table", name="Egress queues of port 1").count() == 0
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        running.stop()
    finally:
        queueing.kill()


def background(page: Page) -> int:
    """Return how light the page's background is, 0 to 765."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_fits_phones_and_desks_by_day_and_by_night(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    page = open_page(controller.url)
    slider = card(page).get_by_role("slider")
    for width, height in ((320, 640), (390, 844), (768, 1024), (1280, 900)):
        page.set_viewport_size({"width": width, "height": height})
        expect(slider).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = slider.bounding_box()
        assert box is not None
        assert box["width"] > 120, "a finger needs room"
        assert box["height"] >= 32
    assert background(page) > 600
    page.emulate_media(color_scheme="dark")
    assert background(page) < 200


def test_the_colours_can_be_chosen_and_stay_so(controller: Controller, open_page: Open) -> None:
    page = open_page(controller.url)
    button = page.get_by_role("button", name="Colours")
    assert background(page) > 600
    button.click()
    button.click()
    expect(button).to_have_attribute("title", "Colours: dark")
    assert background(page) < 200
    page.reload()
    assert background(page) < 200


FRAME = (
    "ffffffffffff 020000000001 0800 4500001c00004000401100000a0000010a000101 "
    "9c40 1389 0008 0000" + "00" * 18
)
"""A UDP packet to port 5001 and to all stations."""


def test_a_dry_run_is_shown_as_a_tree(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    form = page.locator("#dry-run-form")
    form.get_by_label("A frame that might come in").fill(FRAME)
    form.get_by_role("button").click()
    trace = page.locator(".trace")
    expect(trace.locator("summary")).to_contain_text("60 bytes at port 1")
    expect(trace).to_contain_text("PacerIngress.classes")
    expect(trace).to_contain_text("parser_error != error.NoError (pacer.p4:120)")
    expect(trace.locator(".end", has_text="egress port 2")).to_be_visible()
    form.get_by_label("Port").fill("99")
    form.get_by_role("button").click()
    expect(page.locator("#trace-message")).to_contain_text("no port 99")
    expect(trace).to_have_count(0)


@pytest.mark.usefixtures("traffic")
def test_packets_are_watched_until_their_count(controller: Controller, open_page: Open) -> None:
    make_class(controller)
    page = open_page(controller.url)
    wait_live(page)
    form = page.locator("#watch-form")
    form.get_by_label("Packets that come in").fill("udp dport 5001")
    form.get_by_label("Count").fill("3")
    form.get_by_role("button").click()
    expect(page.locator(".trace")).to_have_count(3)
    expect(page.locator(".trace[open]")).to_have_count(1)
    expect(page.locator("#watch")).to_have_text("Watch")
    form.get_by_label("Packets that come in").fill("udp and")
    form.get_by_role("button").click()
    expect(page.locator("#trace-message")).to_contain_text("syntax error")
