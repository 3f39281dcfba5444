"""Controller of pacing switches: desired state by REST, P4Runtime and Open vSwitch to the switches.

How the modules lean on each other, top to bottom:

- `server` reads options and configuration (`config`, `store_options`, `option_files`) and starts
  one asyncio service.
- `api` is HTTP: paths, OpenAPI, problem details (`problems`), body limits (`http_limits`), token,
  streams; `ryu` is the same for Ryu's paths; `metrics` for Prometheus.
- `service` handles requests: it checks them against the whole state, stores them, has them applied.
- `schemas` are the resources themselves, `fields` their fields' types, `state_schema` the whole
  state; `rates` is the one place where rates are read. `records` are resources as accepted.
- `stores` keep the desired state and the events, in SQLite or in etcd, and say which controller
  drives which switch; `events` has the events. `migrate` copies one store into another.
- `southbound` is the service's interface to a switch; `rows` are entries of a switch as values, and
  the writes that turn one set of them into another.
- `p4rt` is one switch over P4Runtime; `entries` translates resources to its table entries;
  `learning` turns packets from unknown stations into entries; `traffic_manager` is the
  switch's own gRPC service. `openvswitch` is one bridge over OpenFlow and OVSDB.
"""

import os
from importlib.metadata import version

# gRPC's log lines are off: the controller logs the errors that matter. gRPC reads this when it is
# imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__version__ = version("pacer-controller")
