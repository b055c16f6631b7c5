"""Schemathesis asks every operation of the API with what its own description allows, and with what it forbids."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_server_security import MATRIX

from serving import served, settings_for

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
API = sorted(pair for pair in MATRIX if pair[1].startswith("/api/") or pair[1] == "/health")
ALONE = {"/api/curator/key", "/api/session/{kind}", "/api/curators/{name}"}
"""Asked without a session: these would end it."""


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("server"))) as site:
        described = schemathesis.openapi.from_dict(site.client().get("/openapi.json").json())
        study = site.study()
        (person,) = site.join(study, [(1, "open")])
        cookie = "; ".join(f"{name}={text}" for name, text in person.cookies.items())
        csrf = person.headers["x-csrf-token"]
        headers = {"Authorization": f"Bearer {site.key}", "X-CSRF-Token": csrf, "Cookie": cookie}
        yield site, described, study, headers


def test_every_operation_is_described(web):
    _, described, _, _ = web
    found = {(one.ok().method.upper(), one.ok().path) for one in described.get_all_operations()}
    assert found == set(API)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), API, ids=lambda part: part)
def test_the_api_does_what_it_says(web, method, path, mode):
    """Never a server error, never an answer that the description does not have; nothing forbidden is accepted."""
    site, described, study, headers = web
    operation = described[path][method]
    if mode == GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.headers):
        return  # nothing that could be wrong about it
    checks = [*CHECKS, *([negative_data_rejection] if mode == GenerationMode.NEGATIVE else [])]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case):
        if "study" in (case.path_parameters or {}):
            case.path_parameters["study"] = study
        case.call_and_validate(base_url=site.address, headers={} if path in ALONE else headers, checks=checks)

    ask()


def test_control_a_server_error_is_noticed(web):
    site, described, _, headers = web
    rates, site.app.state.rates = site.app.state.rates, None
    try:
        with pytest.raises(schemathesis.errors.FailureGroup, match="Server error"):
            described["/api/answer"]["DELETE"].Case().call_and_validate(
                base_url=site.address, headers=headers, checks=CHECKS
            )
    finally:
        site.app.state.rates = rates
