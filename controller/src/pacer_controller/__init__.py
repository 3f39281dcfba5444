"""Controller of pacing switches: desired state by REST, P4Runtime to the switches.

How the modules lean on each other, top to bottom:

- `server` reads options and configuration (`config`) and starts one asyncio service.
- `api` is HTTP: paths, OpenAPI, problem details (`problems`), body limits (`http_limits`).
- `service` is what a request means: checks it against the whole state, stores it, has it applied.
- `schemas` are the resources themselves; `rates` is the one place where rates are read.
- `store` keeps the desired state in SQLite.
- `p4rt` is one switch over P4Runtime; `entries` translates resources to table entries and says
  which writes turn one set of entries into another; `learning` decides what a packet from an
  unknown station changes; `traffic_manager` is the switch's own gRPC service.
"""

__version__ = "0.1.0"
