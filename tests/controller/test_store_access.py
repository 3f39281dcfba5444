"""A store in etcd that asks for certificates or users, with real members of etcd."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from etcd_members import MISSING, Members

from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.schemas import ClassSpec
from pacer_controller.stores import Status, StoreError, open_store

pytestmark = pytest.mark.skipif(MISSING, reason="not run: no etcd (Debian's etcd-server)")

PREFIX = "/test/"
SECRET = "of-pacer"  # noqa: S105 (of a test's own etcd)


class Feed:
    """A feed that listens to nothing."""

    def entry(self, _: object) -> None:
        """Do nothing."""

    def events(self, _: object) -> None:
        """Do nothing."""


async def use(url: str, **access: Any) -> set[str]:
    """Open a store as a controller does, and write and read all that it writes and reads."""
    store = await open_store(url, **access)
    try:
        await store.start(Feed(), ["s1"], lambda: ["s1"], lambda _: Status("", "pending"))
        try:
            tenure = store.tenure("s1")
            await tenure.becomes(True)
            await tenure.bid()
            record = ClassRecord("video", 1, ClassSpec(rate=10**9))
            changes = [ResourceChange("s1", "class", "video", None, record)]
            await store.write(changes, [], None, {"s1": store.base("s1")})
            await store.catch_up()
            await store.probe()
        finally:
            await store.stop()
    finally:
        await store.close()
    again = await open_store(url, **access)
    await again.close()
    return set(again.desired("s1").classes)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


@pytest.fixture
def members(tmp_path: Path, authority: Authority) -> Iterator[Members]:
    """Run a member that speaks TLS and asks for a certificate."""
    asks = ("--client-cert-auth", "--trusted-ca-file", str(authority.certificate))
    made = Members(tmp_path, 1, *asks, authority=authority)
    made.start()
    yield made
    made.close()


def test_a_certificate_opens_the_store(members: Members, authority: Authority) -> None:
    key, certificate = authority.issue("controller")
    access = {"authority": authority.certificate, "certificate": certificate, "key": key}
    assert asyncio.run(use(members.url(), **access)) == {"video"}


def test_without_a_certificate_the_store_is_closed(members: Members, authority: Authority) -> None:
    with pytest.raises(StoreError, match="etcd at"):
        asyncio.run(use(members.url(), authority=authority.certificate))
    with pytest.raises(StoreError, match="if the members speak TLS, give --store-ca"):
        asyncio.run(use(members.url()))


def test_a_certificate_names_the_user(members: Members, authority: Authority) -> None:
    members.require_users(PREFIX, {"controller": "of no use"})
    key, certificate = authority.issue("controller")
    access = {"authority": authority.certificate, "certificate": certificate, "key": key}
    assert asyncio.run(use(members.url(), **access)) == {"video"}
    key, certificate = authority.issue("stranger")
    access = {"authority": authority.certificate, "certificate": certificate, "key": key}
    with pytest.raises(StoreError, match="must grant readwrite for the store's prefix"):
        asyncio.run(use(members.url(), **access))


def test_members_of_another_authority_are_not_believed(
    members: Members, authority: Authority, tmp_path: Path
) -> None:
    key, certificate = authority.issue("controller")
    other = Authority(tmp_path / "other").certificate
    with pytest.raises(StoreError, match="--store-ca"):
        asyncio.run(use(members.url(), authority=other, certificate=certificate, key=key))


def test_a_member_must_have_a_certificate_for_the_host_of_the_url(
    tmp_path: Path, authority: Authority
) -> None:
    members = Members(tmp_path, 1, authority=authority, named="IP:192.0.2.1")
    members.start()
    try:
        with pytest.raises(StoreError, match="subjectAltName"):
            asyncio.run(use(members.url(), authority=authority.certificate))
    finally:
        members.close()


def test_a_user_with_a_password(tmp_path: Path, authority: Authority) -> None:
    members = Members(tmp_path)
    members.start()
    try:
        members.require_users(PREFIX, {"pacer": SECRET})
        url = members.url().replace("etcd://", "etcd://pacer@")
        assert asyncio.run(use(url, password=SECRET)) == {"video"}
        with pytest.raises(StoreError, match="password that of --store-password-file"):
            asyncio.run(use(url, password=SECRET * 2))
        with pytest.raises(StoreError, match="name one as etcd://USER@"):
            asyncio.run(use(members.url()))
        with pytest.raises(StoreError, match="the members must speak TLS"):
            asyncio.run(use(url, password=SECRET, authority=authority.certificate))
    finally:
        members.close()


def test_a_token_that_is_not_valid_any_longer_is_renewed(tmp_path: Path) -> None:
    """The token ends after a second, and when the rights of users change."""
    for command in ("genrsa -out {0}/jwt.pem 2048", "rsa -in {0}/jwt.pem -pubout -out {0}/pub.pem"):
        made = ["openssl", *command.format(tmp_path).split()]
        subprocess.run(made, check=True, capture_output=True)
    keys = f"pub-key={tmp_path}/pub.pem,priv-key={tmp_path}/jwt.pem"
    token = f"jwt,{keys},sign-method=RS256,ttl=1s"
    members = Members(tmp_path, 1, "--auth-token", token)
    members.start()

    async def run() -> None:
        url = members.url().replace("etcd://", "etcd://pacer@")
        store = await open_store(url, password=SECRET)
        try:
            for number in range(4):
                await asyncio.to_thread(members.add_role, f"role{number}")
                record = ClassRecord(f"c{number}", 1 + number, ClassSpec(rate=10**6))
                await store.write([ResourceChange("s1", "class", record.name, None, record)])
                await asyncio.sleep(0.6)
                # Calls at the same time are all refused for the same token.
                await asyncio.gather(*(store.probe() for _ in range(8)))
        finally:
            await store.close()
        again = await open_store(url, password=SECRET)
        await again.close()
        assert len(again.desired("s1").classes) == 4

    try:
        members.require_users(PREFIX, {"pacer": SECRET})
        asyncio.run(run())
    finally:
        members.close()
