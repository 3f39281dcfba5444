"""A client of Thrift that runs as another user of this machine."""

from __future__ import annotations

import subprocess

NOBODY = 65534
# Makes one call and prints the answer. It runs as another user, who reads none of our files.
_CALL = """
import socket, struct, sys
name, arguments = sys.argv[2].encode(), bytes.fromhex(sys.argv[3])
message = b"\\x80\\1\\0\\1" + struct.pack(">i", len(name)) + name + b"\\0\\0\\0\\1"
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as switch:
    switch.sendall(message + arguments + b"\\0")
    print(switch.recv(4096))
"""


def strangers_answer(port: int, name: str, arguments: bytes = b"") -> str:
    """The bytes that the Thrift server at a port answers to a call, as Python writes them.

    `arguments` are the encoded fields of the call, without the end of the struct. Only root can
    make this call.
    """
    # Not by `user`: the fork that it needs can crash the child, because gRPC has threads.
    become = ["setpriv", f"--reuid={NOBODY}"]
    command = [*become, "/usr/bin/python3", "-c", _CALL, str(port), name, arguments.hex()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout
