"""The options for access to a store."""

import argparse
from pathlib import Path

from pacer_controller.config import ConfigError
from pacer_controller.option_files import check_authority, check_pair, secret
from pacer_controller.stores import Store, open_store

LEASE_S = 3
LEASE_LEAST_S = 2
LEASE_MOST_S = 60


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    texts = {
        "--store-ca": "CA certificates of etcd's members, PEM; with it, TLS is spoken",
        "--store-cert": "certificate to show to them, PEM",
        "--store-key": "its private key, PEM",
        "--store-password-file": "file with the password of etcd's user, which the URL names",
    }
    for name, text in texts.items():
        parser.add_argument(name, type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--lease",
        type=int,
        default=LEASE_S,
        metavar="S",
        help="time after which other controllers take the switches of one that is gone, with etcd: "
        f"{LEASE_LEAST_S} to {LEASE_MOST_S} (default {LEASE_S})",
    )


async def open_given(url: str, arguments: argparse.Namespace) -> Store:
    """Open a store with the options.

    Raises:
        ConfigError: an option is wrong.
        StoreError: the store cannot be used.

    """
    check_authority("--store-ca", arguments.store_ca)
    check_pair("--store", arguments.store_cert, arguments.store_key)
    if not LEASE_LEAST_S <= arguments.lease <= LEASE_MOST_S:
        raise ConfigError(f"--lease {arguments.lease}: want {LEASE_LEAST_S} to {LEASE_MOST_S}")
    return await open_store(
        url,
        authority=arguments.store_ca,
        certificate=arguments.store_cert,
        key=arguments.store_key,
        password=secret("--store-password-file", arguments.store_password_file, 1),
        lease_s=arguments.lease,
    )
