"""Two controllers, one desired state: what one has acknowledged, the other has."""

import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import make_certificate
from test_durability import TAKEOVER_S, flow, flow_path, limit_s
from test_live import CLASS, entries_of, observe, options

from controller_harness import (
    COMPILED,
    DEADLINE_S,
    Controller,
    Network,
    Process,
    Switch,
    eventually,
    free_port,
)
from rest_client import problem

Start = Callable[..., Controller]
Twins = tuple[Controller, Controller]

ENOUGH = 200
"""Acknowledged writes after which the leader is killed."""


class Hosts:
    """Two places for controllers, each with a state file, each the other's peer."""

    def __init__(self, start: Start, switch: Switch, folder: Path) -> None:
        self._start = start
        self._switch = switch
        self._folder = folder
        self._ports = (free_port(), free_port())

    def start(self, which: int, *more: str) -> Controller:
        """Start one of the two, anew or again."""
        return self._start(
            *options(self._switch),
            *("--listen", f"127.0.0.1:{self._ports[which]}"),
            *("--state", str(self._folder / f"state{which}")),
            *("--peer", f"http://127.0.0.1:{self._ports[1 - which]}"),
            *more,
        )


@pytest.fixture
def hosts(start_controller: Start, switch: Switch, tmp_path: Path) -> Hosts:
    return Hosts(start_controller, switch, tmp_path)


def said(controller: Controller) -> dict[str, Any]:
    return dict(controller.get("/v1/replication"))


def leads(controller: Controller) -> bool:
    return bool(said(controller)["role"] == "leader")


def pair_of(hosts: Hosts) -> Twins:
    """Start both; return leader and follower once the follower has everything."""
    both = (hosts.start(0), hosts.start(1))
    eventually(lambda: any(map(leads, both)), "one leads")
    leader, follower = both if leads(both[0]) else both[::-1]
    in_sync(leader, follower)
    return leader, follower


def in_sync(leader: Controller, follower: Controller) -> None:
    eventually(lambda: said(leader)["in_sync"] and said(follower)["in_sync"], "both are in sync")
    leader.wait_connected()
    eventually(
        lambda: follower.get("/v1/switches/s1")["state"] == "backup",
        "the follower stands by at the switch",
    )


def desired(controller: Controller) -> Any:
    return controller.get("/v1/state")


def test_the_follower_has_everything_and_takes_no_changes(hosts: Hosts) -> None:
    leader, follower = pair_of(hosts)
    assert leader.put(CLASS, {"rate": "500Mbit"}).json()["state"] == "applied"
    assert leader.put("/v1/switches/s1/flows/own", flow(1)).json()["class_index"] == 2
    away = {"kind": "p4runtime", "address": f"127.0.0.1:{free_port()}"}
    assert leader.put("/v1/switches/away", away).status_code == 201
    assert leader.put("/v1/switches/away/classes/video", {"rate": "1Mbit"}).status_code == 201
    assert leader.http.delete(CLASS).status_code == 204
    # It has them when they are acknowledged, not some time later.
    assert desired(follower) == desired(leader)
    own = "/v1/switches/s1/flows/own"
    for member in ("revision", "class_index"):
        assert follower.get(own)[member] == leader.get(own)[member]
    told = [e["message"] for e in follower.get("/v1/events?kind=change")["events"]]
    assert told == [e["message"] for e in leader.get("/v1/events?kind=change")["events"]]
    for method, path, body in (
        ("PUT", CLASS, {"rate": "1Mbit"}),
        ("DELETE", own, None),
        ("PUT", "/v1/state", {"switches": {}}),
        ("PUT", "/v1/switches/more", away | {"address": "127.0.0.1:1"}),
    ):
        answer = problem(follower.http.request(method, path, json=body), 503)
        assert answer["type"] == "urn:pacer:problem:not-leading"
        assert leader.url in answer["detail"]
    assert desired(follower) == desired(leader)
    assert follower.http.get("/readyz").status_code == 200
    assert follower.http.get("/readyz?leading=true").status_code == 503
    assert "pacer_replication_leading 0.0" in follower.http.get("/metrics").text


def test_leader_killed_while_it_acknowledges(hosts: Hosts, switch: Switch) -> None:
    leader, follower = pair_of(hosts)
    acknowledged: set[int] = set()
    enough = threading.Event()

    def write(numbers: range) -> None:
        with httpx.Client(base_url=leader.url, timeout=DEADLINE_S, trust_env=False) as client:
            for number in numbers:
                try:
                    made = client.put(flow_path(number), json=flow(number))
                except httpx.TransportError:
                    return
                assert made.status_code == 201, made.text
                acknowledged.add(number)
                if len(acknowledged) >= ENOUGH:
                    enough.set()

    writers = 4
    with ThreadPoolExecutor(writers) as pool:
        share = ENOUGH
        running = [pool.submit(write, range(n * share, (n + 1) * share)) for n in range(writers)]
        assert enough.wait(DEADLINE_S)
        leader.process.kill()
        killed_s = time.monotonic()
        allowed_s = limit_s(TAKEOVER_S)
        eventually(lambda: leads(follower), "the follower leads")
        follower.wait_connected()
        took_s = time.monotonic() - killed_s
        for one in running:
            one.result()
    assert took_s < allowed_s
    kept = {int(f["name"][1:]): f for f in follower.get("/v1/switches/s1/flows")["flows"]}
    assert acknowledged <= kept.keys()
    assert all(kept[number]["rate_bps"] == flow(number)["rate"] for number in kept)
    # One entry for each on the switch, none twice, none too many.
    on_switch = [entry["dst_port"][0] - 1000 for entry in entries_of(switch, "flows")]
    assert sorted(on_switch) == sorted(kept)
    assert len(entries_of(switch, "classes")) == len(kept)
    assert follower.put(CLASS, {"rate": "1Mbit"}).json()["state"] == "applied"


def test_a_takeover_leaves_the_data_plane_alone_and_the_former_leader_follows(
    hosts: Hosts, switch: Switch
) -> None:
    leader, follower = pair_of(hosts)
    first = 0 if leader.url.endswith(str(hosts._ports[0])) else 1
    flows = {f"f{n:03}": flow(n) for n in range(100)}
    assert leader.put("/v1/switches/s1/state", {"flows": flows}).status_code == 200
    before = observe(switch, "read")
    epoch = said(leader)["epoch"]
    leader.process.kill()
    eventually(lambda: leads(follower), "the follower leads")
    follower.wait_connected()
    assert said(follower)["epoch"] == epoch + 1
    view = follower.get("/v1/switches/s1")
    assert (view["role"], view["counters"]["reconcile_writes"]) == ("primary", 0)
    assert observe(switch, "read") == before
    # What the former leader missed it gets, and it does not claim the switch.
    assert follower.put(CLASS, {"rate": "1Mbit"}).json()["state"] == "applied"
    again = hosts.start(first)
    in_sync(follower, again)
    assert desired(again) == desired(follower)
    # And back, by ending it in good order.
    assert follower.process.stop() == 0
    eventually(lambda: leads(again), "the former leader leads again")
    again.wait_connected()
    assert len(entries_of(switch, "flows")) == 100


def test_a_leader_goes_on_without_its_follower_and_leads_alone_again(
    hosts: Hosts, switch: Switch
) -> None:
    leader, follower = pair_of(hosts)
    first = 0 if leader.url.endswith(str(hosts._ports[0])) else 1
    follower.process.kill()
    # It waits until the follower can have taken over no more, and then goes on.
    assert leader.put(CLASS, {"rate": "1Mbit"}).json()["state"] == "applied"
    assert said(leader)["alone"]
    assert leader.put(CLASS, {"rate": "2Mbit"}).status_code == 200
    leader.process.kill()
    # The one that was left behind does not lead with what it has.
    behind = hosts.start(1 - first)
    eventually(lambda: "does not answer" in said(behind)["reason"], "it waits for its peer")
    problem(behind.put(CLASS, {"rate": "3Mbit"}), 503)
    again = hosts.start(first)
    eventually(lambda: leads(again), "the one that has everything leads")
    in_sync(again, behind)
    assert behind.get(CLASS)["rate_bps"] == 2_000_000
    assert [e["time_per_byte_q24"] for e in entries_of(switch, "classes")] == [4000 << 24]


def test_told_to_lead(hosts: Hosts) -> None:
    leader, follower = pair_of(hosts)
    leader.put(CLASS, {"rate": "1Mbit"})
    told = follower.put("/v1/replication", {"role": "leader"})
    assert told.json()["role"] == "leader"
    follower.wait_connected()
    in_sync(follower, leader)
    assert problem(leader.put(CLASS, {"rate": "2Mbit"}), 503)["type"].endswith(":not-leading")
    assert follower.put(CLASS, {"rate": "2Mbit"}).json()["state"] == "applied"
    assert leader.get(CLASS)["rate_bps"] == 2_000_000


def test_with_token_and_tls(network: Network, tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    files = ["--token-file", str(token), "--tls-cert", str(certificate), "--tls-key", str(key)]
    ports = (free_port(), free_port())
    away = f"s1=127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "pacer_controller", "--compiled-dir", str(COMPILED), *files]
    command += ["--switch", away, "--peer-ca", str(certificate)]
    processes = [
        Process([*command, "--listen", f"127.0.0.1:{own}", "--peer", f"https://127.0.0.1:{other}"])
        for own, other in (ports, ports[::-1])
    ]
    trusted = ssl.create_default_context(cafile=str(certificate))
    allowed = {"Authorization": f"Bearer {token.read_text()}"}
    urls = [one.wait_for_line("pacer-controller: ready").rpartition(" ")[2] for one in processes]
    with httpx.Client(
        headers=allowed, verify=trusted, timeout=DEADLINE_S, trust_env=False
    ) as client:
        try:

            def roles() -> dict[str, str] | None:
                told = {url: client.get(f"{url}/v1/replication").json() for url in urls}
                in_sync = all(one["in_sync"] for one in told.values())
                return {one["role"]: url for url, one in told.items()} if in_sync else None

            role = eventually(roles, "one leads, the other has everything")
            made = client.put(role["leader"] + CLASS, json={"rate": "1Mbit"})
            assert made.status_code == 201
            assert client.get(role["follower"] + CLASS).json()["rate_bps"] == 1_000_000
            query = "follower=0123456789abcdef&epoch=0&after=0"
            feed = f"{role['leader']}/v1/replication/feed?{query}"
            assert client.get(feed, headers={"Authorization": "Bearer no"}).status_code == 401
            # It has its follower already.
            assert client.get(feed).json()["type"].endswith(":another-follower")
        finally:
            for one in processes:
                one.kill()


@pytest.fixture
def single(start_controller: Start) -> Controller:
    return start_controller("--switch", f"s1=127.0.0.1:{free_port()}")


def test_one_by_itself_is_followed_by_nobody(single: Controller) -> None:
    assert said(single)["role"] == "leader"
    query = "follower=0123456789abcdef&epoch=0&after=0"
    asked = problem(single.http.get(f"/v1/replication/feed?{query}"), 409)
    assert asked["type"].endswith(":no-peer")
    problem(single.put("/v1/replication", {"role": "leader"}), 409)
    problem(single.put("/v1/replication", {"role": "follower"}), 422)
