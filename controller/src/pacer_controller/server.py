"""The command `pacer-controller`."""

import argparse
import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from pacer_controller import __version__, config
from pacer_controller.api import build
from pacer_controller.replication import PeerAddress
from pacer_controller.service import Service
from pacer_controller.store import Store, StoreError
from pacer_controller.switch_tls import SwitchTls

_LOG = logging.getLogger("pacer_controller")

_SWITCH_HELP = """NAME=HOST:PORT[,key=value...]: a switch; may be repeated (tls:HOST:PORT where its
P4Runtime server speaks TLS). Keys: device-id=N (0),
program=pacer|gtrcnet|PATH (pacer), target=pacing_switch|bmv2 (pacing_switch), cpu-port=N (510),
ports=1-4 (for switches that cannot list theirs; 1+3 for single ones), wire=1:2 and
bottleneck=500mbit (gtrcnet)"""


MAX_CONNECTIONS = 512
"""Connections at a time; further ones are answered 503. Files are for the switches, too."""


class _Server(uvicorn.Server):
    """A server that ends cleanly on a signal; uvicorn's own handler raises the signal again.

    Args:
        settings: uvicorn's.
        closing: set when the server is asked to end, so that streams do.

    """

    def __init__(self, settings: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(settings)
        self._closing = closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; streams first, which would otherwise hold it up."""
        self._closing.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ask the server to end on SIGINT and SIGTERM."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = argparse.ArgumentParser(
        prog="pacer-controller", description="Sets per-flow rates on pacing switches, by REST."
    )

    def file_option(name: str, text: str) -> None:
        made.add_argument(name, type=Path, metavar="FILE", help=text)

    made.add_argument("--listen", metavar="HOST:PORT", help=f"default {config.DEFAULT_LISTEN}")
    file_option(
        "--token-file", "file with the bearer token of requests; required to listen beyond loopback"
    )
    file_option("--tls-cert", "certificate chain, PEM")
    file_option("--tls-key", "its private key, PEM")
    made.add_argument("--switch", action="append", default=[], help=_SWITCH_HELP)
    file_option("--switch-ca", "CA certificates for switches at tls:HOST:PORT, PEM")
    file_option("--switch-cert", "certificate to show to such switches, PEM")
    file_option("--switch-key", "its private key, PEM")
    file_option("--config", "TOML file")
    made.add_argument(
        "--compiled-dir",
        type=Path,
        metavar="DIR",
        help="directory of compiled P4 programs (default: the checkout's p4src/compiled)",
    )
    made.add_argument(
        "--state", metavar="FILE", help="SQLite file of the desired state (default: in memory)"
    )
    made.add_argument(
        "--reconcile-interval",
        type=float,
        default=30.0,
        metavar="S",
        help="how often switches are read back for foreign changes; 0 never (default 30)",
    )
    made.add_argument(
        "--no-history",
        action="store_true",
        help="do not read the switches every 2 s for the dashboard's first minute",
    )
    made.add_argument(
        "--peer",
        metavar="URL",
        help="the other controller of these switches: one of the two leads, the other follows and "
        "takes over; both have the same token and name each other",
    )
    file_option("--peer-ca", "CA certificates for the peer, PEM")
    made.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    made.add_argument("--log-json", action="store_true", help="log one JSON object per line")
    made.add_argument("--version", action="version", version=__version__)
    return made


def _compiled_directory(given: Path | None) -> Path:
    """Return the directory of compiled programs: the option's, or the checkout's."""
    if given is not None:
        return given
    here = Path(__file__).resolve()
    if len(here.parents) > 3 and (here.parents[3] / "p4src" / "compiled").is_dir():
        return here.parents[3] / "p4src" / "compiled"
    return Path("p4src") / "compiled"


def _configure(arguments: argparse.Namespace) -> config.Config:
    base = config.load(arguments.config) if arguments.config else config.Config(())
    given = [config.parse_switch(text) for text in arguments.switch]
    names = {switch.name for switch in given}
    kept = [switch for switch in base.switches if switch.name not in names]
    return config.Config(
        switches=config.check_switches([*kept, *given]),
        listen=arguments.listen or base.listen,
        state=arguments.state or base.state,
        peer=arguments.peer or base.peer,
    )


def _set_up_logging(level: str, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if as_json else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries log every step; their errors are logged here, in one line each.
    if level != "debug":
        logging.getLogger("finsy").setLevel(logging.CRITICAL)
        logging.getLogger("finsy").propagate = False
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        # It logs each request of a follower to its leader.
        logging.getLogger("httpx").setLevel(logging.WARNING)


def _listen(host: str, port: int, has_token: bool) -> socket.socket:
    """Open the listening socket.

    Raises:
        ConfigError: not a local address, or not free.

    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise config.ConfigError(f"listen: {host}: {error.strerror or error}") from None
    if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback and not has_token:
        raise config.ConfigError(
            f"listen: {host} is not loopback, and there is no token: listen on 127.0.0.1, or name "
            "a file with a token as --token-file"
        )
    # The protocol must be named: asyncio turns Nagle's algorithm off only for sockets that say
    # TCP, and with it on each answer would wait 40 ms for the client's delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise config.ConfigError(f"listen: {host}:{port}: {error.strerror}") from None
    return listener


MIN_TOKEN = 16


def _token(path: Path | None) -> str | None:
    """Read the token.

    Raises:
        ConfigError: unreadable, too short, or not one line of visible ASCII.

    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise config.ConfigError(f"--token-file: {error}") from None
    if len(token) < MIN_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise config.ConfigError(
            f"--token-file {path}: want one line of at least {MIN_TOKEN} visible ASCII characters, "
            "such as `openssl rand -hex 32` prints"
        )
    return token


def _check_pair(option: str, certificate: Path | None, key: Path | None) -> None:
    """Check that a certificate and a key are given together, and fit.

    Raises:
        ConfigError: they are not, or do not.

    """
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise config.ConfigError(f"{option}-cert and {option}-key must be given together")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        raise config.ConfigError(f"{option}-cert {certificate}: {error}") from None


def _check_authority(option: str, authority: Path | None) -> None:
    """Check a file of CA certificates.

    Raises:
        ConfigError: the file has no certificate.

    """
    if authority is None:
        return
    try:
        ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise config.ConfigError(f"{option} {authority}: {error}") from None


def _peer(url: str | None, authority: Path | None, token: str | None) -> PeerAddress | None:
    """Check where the peer is.

    Raises:
        ConfigError: no address, or no certificate.

    """
    if url is None:
        if authority is not None:
            raise config.ConfigError("--peer-ca requires --peer")
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise config.ConfigError(f"--peer {url!r}: want http://HOST:PORT or https://HOST:PORT")
    _check_authority("--peer-ca", authority)
    return PeerAddress(url.rstrip("/"), token, authority)


async def _serve(settings: config.Config, arguments: argparse.Namespace) -> None:
    token = _token(arguments.token_file)
    _check_pair("--tls", arguments.tls_cert, arguments.tls_key)
    _check_pair("--switch", arguments.switch_cert, arguments.switch_key)
    _check_authority("--switch-ca", arguments.switch_ca)
    switch_tls = SwitchTls(arguments.switch_ca, arguments.switch_cert, arguments.switch_key)
    peer = _peer(settings.peer, arguments.peer_ca, token)
    name, number = config.parse_listen(settings.listen)
    listener = _listen(name, number, token is not None)
    with listener, Store(settings.state) as store:
        service = Service(
            settings.switches,
            _compiled_directory(arguments.compiled_dir),
            store,
            arguments.reconcile_interval,
            peer,
            switch_tls,
        )
        server = _Server(
            uvicorn.Config(
                build(service, token, [name], history=not arguments.no_history),
                ssl_certfile=arguments.tls_cert,
                ssl_keyfile=arguments.tls_key,
                log_config=None,
                access_log=arguments.log_level == "debug",
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=3,
            ),
            service.closing,
        )
        # What is there now stays to the end. Left to the garbage collector, it would be looked
        # through every few seconds, and every request in flight would wait for that: 40 to 80 ms.
        gc.collect()
        gc.freeze()
        scheme = "https" if arguments.tls_cert else "http"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"pacer-controller: ready {scheme}://{shown}:{port}", file=sys.stderr, flush=True)
        await server.serve(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller until SIGINT or SIGTERM; returns the exit status."""
    # gRPC's own log lines would mix with ours, which say what matters.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    options = parser().parse_args(arguments)
    _set_up_logging(options.log_level, options.log_json)
    try:
        asyncio.run(_serve(_configure(options), options))
    except (config.ConfigError, StoreError) as error:
        print(f"pacer-controller: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0
