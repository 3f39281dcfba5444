"""The command `pacer-controller`."""

import argparse
import asyncio
import contextlib
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn
import uvloop

from pacer_controller import __version__, config, migrate, service_manager, token_command
from pacer_controller.api import build
from pacer_controller.connections import Connections
from pacer_controller.http_protocol import IDLE_S, SecuredProtocol, SilentProtocol
from pacer_controller.option_files import check_authority, check_pair, secret
from pacer_controller.problems import meant_of
from pacer_controller.service import Service
from pacer_controller.store_options import add_store_options, open_given
from pacer_controller.stores import Store, StoreError
from pacer_controller.switch_tls import SwitchTls
from pacer_controller.users import Users

_LOG = logging.getLogger("pacer_controller")

_SWITCH_HELP = """NAME=HOST:PORT[,key=value...]: a switch; may be repeated (tls:HOST:PORT where its
P4Runtime server speaks TLS). Keys: device-id=N (0),
program=pacer|gtrcnet|PATH (pacer), target=pacing_switch|bmv2 (pacing_switch), cpu-port=N (510),
ports=1-4 (for switches that cannot list theirs; 1+3 for single ones), wire=1:2 and
bottleneck=500mbit (gtrcnet)"""


ACCEPTED_TOGETHER = 16
"""Most connections that are accepted at a time, before requests are handled again."""

WAITING_MOST = 1024
"""Most connections that wait to be accepted."""

SILENT_MS = 60_000
"""Longest time for which sent data may stay unacknowledged, in milliseconds (TCP_USER_TIMEOUT)."""

_INSTALLED_PROGRAMS = Path("/usr/share/p4-pspacer/compiled")
"""Compiled P4 programs of the Debian package."""

_STATE_FILE = "state.sqlite"
_IN_MEMORY = f"{config.SQLITE}:memory:"

_COMMANDS = {"migrate": migrate.main, "token": token_command.main}

FILES_MOST = 4096
"""Wanted limit of open files, for the connections of clients and to switches."""


class _Server(uvicorn.Server):
    """A server that ends cleanly on a signal; uvicorn's own handler raises the signal again.

    Args:
        settings: uvicorn's settings.
        connections: the connections of clients.
        store: the store; the server ends when the store is broken.
        closing: set when the server should end, so that streams end, too.
        ready: a line for stderr, once the server listens and handles signals.

    """

    def __init__(
        self,
        settings: uvicorn.Config,
        connections: Connections,
        store: Store,
        closing: asyncio.Event,
        ready: str,
    ) -> None:
        super().__init__(settings)
        self._connections = connections
        self._store = store
        self._closing = closing
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        for one in sockets or ():
            # asyncio uses one number as length of the queue and as the number accepted at a time.
            one.listen(WAITING_MOST)
        print(self._ready, file=sys.stderr, flush=True)

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections, and end if the store is broken; called every 0.1 s."""
        self._connections.sweep(time.monotonic())
        if self._store.broken is not None and not self.should_exit:
            self.should_exit = True
            self._closing.set()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, which would delay the end, and then the server."""
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


class _BrokenError(Exception):
    """The store is broken and refuses all writes."""


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
        prog="pacer-controller",
        description="Sets per-flow rates on pacing switches, by REST.",
        epilog="pacer-controller token changes users and their tokens; pacer-controller migrate "
        "copies the state to another store. Each has a --help.",
    )

    def file_option(name: str, text: str) -> None:
        made.add_argument(name, type=Path, metavar="FILE", help=text)

    made.add_argument("--listen", metavar="HOST:PORT", help=f"default {config.DEFAULT_LISTEN}")
    file_option(
        "--tokens",
        "file of users, their roles and tokens (pacer-controller token); this or --token-file is "
        "required to listen beyond loopback",
    )
    file_option("--token-file", "file with one bearer token, whose user may do everything")
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
        help="directory of compiled P4 programs (default: the checkout's p4src/compiled, or the "
        "Debian package's)",
    )
    made.add_argument(
        "--store",
        metavar="URL",
        help="where the desired state is: sqlite:FILE for one controller, or "
        "etcd://[USER@]HOST:PORT[,HOST:PORT...][/PREFIX], which any number of controllers share "
        "(default: state.sqlite in systemd's state directory of the service; in memory without)",
    )
    made.add_argument("--state", metavar="FILE", help="the same as --store sqlite:FILE")
    add_store_options(made)
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
    made.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    made.add_argument("--log-json", action="store_true", help="log one JSON object per line")
    made.add_argument("--version", action="version", version=__version__)
    return made


def _compiled_directory(given: Path | None) -> Path:
    """Return the directory of compiled programs: the option's, the checkout's, or the package's."""
    if given is not None:
        return given
    here = Path(__file__).resolve()
    if len(here.parents) > 3 and (here.parents[3] / "p4src" / "compiled").is_dir():
        return here.parents[3] / "p4src" / "compiled"
    return _INSTALLED_PROGRAMS


def _configure(arguments: argparse.Namespace) -> config.Config:
    base = config.load(arguments.config) if arguments.config else config.Config(())
    given = [config.parse_switch(text) for text in arguments.switch]
    names = {switch.name for switch in given}
    kept = [switch for switch in base.switches if switch.name not in names]
    return config.Config(
        switches=config.check_switches([*kept, *given]),
        listen=arguments.listen or base.listen,
        store=_store_url(arguments, base.store),
    )


def _store_url(arguments: argparse.Namespace, configured: str | None) -> str:
    """Return the store of the options, else of the configuration file, else the default.

    The default is a file in the state directory that systemd gives a service, so that a service
    whose configuration names no store keeps its state; without such a directory it is in memory.

    Raises:
        ConfigError: they name two stores.

    """
    named: dict[str, str | None] = {
        "--state": f"{config.SQLITE}{arguments.state}" if arguments.state else None,
        "--store": arguments.store,
        str(arguments.config): configured,
    }
    urls = {where: url for where, url in named.items() if url}
    if len(set(urls.values())) > 1:
        said = ", ".join(f"{where} names {url}" for where, url in urls.items())
        raise config.ConfigError(f"there can be one store: {said}")
    if urls:
        return next(iter(urls.values()))
    directory = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return f"{config.SQLITE}{directory}/{_STATE_FILE}" if directory else _IN_MEMORY


def _set_up_logging(level: str, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if as_json else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries log every step. The controller logs their errors itself, in one line each.
    if level != "debug":
        logging.getLogger("finsy").setLevel(logging.CRITICAL)
        logging.getLogger("finsy").propagate = False
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _listen(host: str, port: int, *, has_token: bool, encrypted: bool) -> socket.socket:
    """Open the listening socket.

    Raises:
        ConfigError: the address is not local, not free, or not safe to listen at.

    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise config.ConfigError(f"listen: {host}: {error.strerror or error}") from None
    loopback = ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    if not loopback and not has_token:
        raise config.ConfigError(
            f"listen: {host} is not loopback, and there is no token: listen on 127.0.0.1, or name "
            "a file of users as --tokens, or one with a token as --token-file"
        )
    if not loopback and not encrypted:
        raise config.ConfigError(
            f"listen: {host} is not loopback, and clients would send the token in clear: give "
            "--tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that speaks TLS"
        )
    # The protocol must be given: asyncio turns Nagle's algorithm off only for sockets whose
    # protocol is TCP. With the algorithm, each answer would wait 40 ms for a delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MS)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise config.ConfigError(f"listen: {host}:{port}: {error.strerror}") from None
    return listener


def _tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate, key)
    return made


def _allow_files() -> None:
    """Raise the limit of open files to FILES_MOST, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MOST if hard == resource.RLIM_INFINITY else min(FILES_MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _loop_factory(arguments: argparse.Namespace) -> Callable[[], asyncio.AbstractEventLoop]:
    """Choose the event loop: that of uvloop is faster, and cannot begin TLS as this server does.

    uvloop reads from a connection even if its protocol has paused that in `connection_made`, so the
    first message of a handshake can arrive before TLS begins (`SecuredProtocol`).
    """
    return asyncio.new_event_loop if arguments.tls_cert else uvloop.new_event_loop


async def _serve(settings: config.Config, arguments: argparse.Namespace) -> None:
    users = Users(secret("--token-file", arguments.token_file), arguments.tokens)
    check_pair("--tls", arguments.tls_cert, arguments.tls_key)
    check_pair("--switch", arguments.switch_cert, arguments.switch_key)
    check_authority("--switch-ca", arguments.switch_ca)
    switch_tls = SwitchTls(arguments.switch_ca, arguments.switch_cert, arguments.switch_key)
    name, number = config.parse_listen(settings.listen)
    encrypted = arguments.tls_cert is not None
    listener = _listen(name, number, has_token=users.required, encrypted=encrypted)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(listener)
        url = settings.store or _IN_MEMORY
        if url == _IN_MEMORY:
            _LOG.info("the desired state is in memory only: --state FILE keeps it over restarts")
        store = await open_given(url, arguments)
        stack.push_async_callback(store.close)
        service = Service(
            settings.switches,
            _compiled_directory(arguments.compiled_dir),
            store,
            arguments.reconcile_interval,
            switch_tls,
        )
        connections = Connections(service.refusals)
        application = build(
            service, users, [name], history=not arguments.no_history, connections=connections
        )
        tls = _tls_context(arguments.tls_cert, arguments.tls_key)
        protocol = (
            partial(SilentProtocol, connections)
            if tls is None
            else partial(SecuredProtocol, connections, tls)
        )
        scheme = "https" if arguments.tls_cert else "http"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        server = _Server(
            uvicorn.Config(
                application,
                http=cast(type[asyncio.Protocol], protocol),
                ws="none",
                log_config=None,
                access_log=arguments.log_level == "debug",
                server_header=False,
                backlog=ACCEPTED_TOGETHER,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=3,
            ),
            connections,
            store,
            service.closing,
            f"pacer-controller: ready {scheme}://{shown}:{port}",
        )
        # The present objects live until the end. Without the freeze the garbage collector would
        # scan them every few seconds, and all requests would wait 40 to 80 ms for it.
        gc.collect()
        gc.freeze()
        async with service_manager.told():
            await server.serve(sockets=[listener])
        if store.broken is not None:
            raise _BrokenError(f"{store.name}: {store.broken}: the controller ends; start it anew")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller until SIGINT, SIGTERM or an error of its disk; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = _COMMANDS.get(given[0]) if given else None
    if command is not None:
        return command(given[1:])
    made = parser()
    if given and not given[0].startswith("-"):
        made.error(f"no command {given[0]!r}{meant_of(given[0], _COMMANDS)}")
    options = made.parse_args(given)
    _set_up_logging(options.log_level, options.log_json)
    _allow_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(options)) as runner:
            runner.run(_serve(_configure(options), options))
    except (config.ConfigError, StoreError) as error:
        print(f"pacer-controller: {error}", file=sys.stderr)
        return 2
    except _BrokenError as error:
        print(f"pacer-controller: {error}", file=sys.stderr)
        return os.EX_IOERR
    except KeyboardInterrupt:
        return 0
    return 0
