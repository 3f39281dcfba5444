"""Every path of the OpenAPI document against its own description, with anything a client may send.

No answer may be a 5xx, and every answer must conform to the document: status, type, schema.
Streams, which do not end, have tests of their own.

    OPENAPI_EXAMPLES=200 build/venv/bin/python -m pytest -q tests/controller/test_openapi.py

tries longer: some minutes on a quiet machine.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from controller_harness import Controller, free_port
from rest_client import Client

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "10"))
"""For each path and method: enough to find gaps of a description, in seconds."""

MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


AWAY = ("/bandwidth", "/readyz")
"""The honest 5xx here: the switch that would have to be asked is away."""


def operations() -> list[tuple[str, str]]:
    """Return path and method of everything in the document but streams."""
    client = Client()
    paths = client.app.openapi()["paths"]
    client.store.shut()
    return [
        (path, method)
        for path, methods in paths.items()
        for method in methods
        if not path.endswith("/stream")
    ]


@pytest.fixture(scope="module")
def described() -> Iterator[schemathesis.BaseSchema]:
    """Run a controller whose switch is away, and read its description."""
    controller = Controller("--switch", f"s1=127.0.0.1:{free_port()}")
    try:
        yield schemathesis.openapi.from_url(f"{controller.url}/openapi.json")
    finally:
        controller.close()


@pytest.mark.parametrize("mode", MODES, ids=["right", "wrong"])
@pytest.mark.parametrize(("path", "method"), operations())
def test_answers_are_as_described(
    described: schemathesis.BaseSchema,
    path: str,
    method: str,
    mode: schemathesis.GenerationMode,
) -> None:
    operation = described[path][method]
    anything_goes = path.startswith("/v1.0/")
    nothing_to_say = not [*operation.iter_parameters(), *operation.body]
    if mode is MODES[1] and (anything_goes or nothing_to_say):
        pytest.skip("not run: what this takes cannot be wrong")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case[Any]) -> None:
        response = case.call()
        away = response.status_code == 503 and path.endswith(AWAY)
        case.validate_response(response, checks=CHECKS if away else [not_a_server_error, *CHECKS])

    check()
