"""Messages of the switch's own gRPC service, as the controller reads them."""

import asyncio
import socket

import grpc.aio
import pytest

from controller_harness import free_port
from pacer_controller import switch_services, traffic_manager
from pacer_controller.switch_services import ServiceUnavailableError
from pacer_controller.traffic_manager import TrafficManager


def test_statistics_become_plain_values() -> None:
    messages = switch_services.messages()
    message = messages["PortStatistics"](port=2, rx_packets=2**63)
    message.drops.add(cause="fifo-full", packets=7)
    message.lateness.buckets.extend([5, 0, 1])
    message.lateness.max_ns = 3
    plain = traffic_manager._plain(
        messages["PortStatistics"].FromString(message.SerializeToString())
    )
    assert plain["port"] == 2
    assert plain["rx_packets"] == 2**63
    assert plain["tx_bytes"] == 0
    assert plain["drops"] == {"fifo-full": 7}
    assert plain["lateness"] == {"buckets": [5, 0, 1], "max_ns": 3}


def test_class_queues_become_lists() -> None:
    message = switch_services.messages()["ClassState"](class_id=1, backlog_bytes=9)
    message.queues.add(port=2, release_ns=5)
    plain = traffic_manager._plain(message)
    assert plain["queues"][0]["release_ns"] == 5
    assert plain["backlog_bytes"] == 9


def test_nobody_there() -> None:
    async def ask() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
            await TrafficManager(channel).ports()

    with pytest.raises(ServiceUnavailableError, match="ListPorts: UNAVAILABLE") as caught:
        asyncio.run(ask())
    assert not caught.value.unimplemented


def test_a_closed_connection_is_no_cancellation() -> None:
    async def ask_and_close() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{silent.getsockname()[1]}")
            client = TrafficManager(channel)
            asked = asyncio.create_task(client.ports())
            # The call is under way once the other side has a connection.
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                await channel.close()
                with pytest.raises(ServiceUnavailableError, match="connection closed"):
                    await asked
                with pytest.raises(ServiceUnavailableError, match="connection closed"):
                    await client.ports()

    asyncio.run(ask_and_close())
