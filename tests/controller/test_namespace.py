"""The network namespace of the tests."""

import contextlib
import os
from typing import Any

import grpc
import pytest

from controller_harness import free_port


def test_grpc_s_threads_are_in_the_namespace_of_the_tests(request: pytest.FixtureRequest) -> None:
    """Whichever test is the first to use gRPC: a thread stays where it was started."""
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
        call: Any = channel.unary_unary("/nobody/there")
        with pytest.raises(grpc.RpcError):
            call(b"", timeout=5.0)
        request.getfixturevalue("network")
        namespaces = set()
        for thread in os.listdir("/proc/self/task"):
            # A thread may end meanwhile.
            with contextlib.suppress(FileNotFoundError):
                namespaces.add(os.readlink(f"/proc/self/task/{thread}/ns/net"))
    assert len(namespaces) == 1
