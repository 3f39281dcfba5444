"""The classes that switches have, read over P4Runtime: no controller takes part."""

from pathlib import Path

import finsy as fy
import grpc
from finsy.p4entity import decode_entity
from finsy.proto import p4r, p4r_grpc
from pacer_controller import entries, rates
from pacer_controller.rows import CLASSES
from pacer_controller.switch_tls import SwitchTls, endpoint

READ_S = 5.0


class SwitchTables:
    """Reads the classes of switches.

    Args:
        p4info: the path of the P4Info of their program.

    """

    def __init__(self, p4info: Path) -> None:
        self._schema = fy.P4Schema(p4info)

    def times_per_byte(self, address: str) -> dict[int, int]:
        """Return the time per byte of each class of a switch, in 2^-24 ns, by index.

        Raises:
            grpc.RpcError: the switch does not answer.

        """
        table = self._schema.tables[CLASSES].id
        request = p4r.ReadRequest(
            entities=[p4r.Entity(table_entry=p4r.TableEntry(table_id=table))],
        )
        with channel(address) as opened:
            answers = p4r_grpc.P4RuntimeStub(opened).Read(request, timeout=READ_S)
            found = [
                decode_entity(one, self._schema) for answer in answers for one in answer.entities
            ]
        rows = [entries.from_finsy(one, self._schema) for one in found if not one.is_default_action]
        return {
            int(str(dict(row.match)["class_id"])): int(dict(row.params)["time_per_byte_q24"])
            for row in rows
        }


def desired_times_per_byte(classes: list[dict[str, int]]) -> dict[int, int]:
    """Return the same of classes as a controller's REST interface shows them."""
    return {one["index"]: rates.time_per_byte_q24(one["rate_bps"]) for one in classes}


def channel(address: str) -> grpc.Channel:
    """Return a channel to a switch, which connects anew soon after a restart."""
    where, tls = endpoint(address, SwitchTls())
    options: list[tuple[str, int | str]] = [("grpc.max_reconnect_backoff_ms", 1000)]
    if tls is None:
        return grpc.insecure_channel(where, options=options)
    options.append(("grpc.ssl_target_name_override", tls.target_name_override))
    return grpc.secure_channel(where, tls.to_client_credentials(), options=options)
