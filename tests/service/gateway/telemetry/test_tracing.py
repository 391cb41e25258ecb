"""Traces, sent to a real OTLP/HTTP receiver: a span per request, with nothing of its question."""

import sys
import time
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from service.gateway.telemetry.tracing import open_tracing
from service.operations.services import Services
from service.serving.web import create_app
from tests.recording_proxy import recording_proxy
from tests.service.conftest import MajorityEngine, bearer
from tests.service.gateway.telemetry.trace_receiver import TraceReceiver, attributes, receiving
from tests.service.shell import Shell

CANARY = "canary-5f1e90"
TRACE, PARENT = "4bf92f35" * 4, "00f067aa" * 2


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceReceiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


@pytest.fixture
def analyst(services: Services) -> str:
    return services.records.keys.create("analyst", "analyst")[1]


def spans(receiver: TraceReceiver, services: Services, *requests: tuple[str, str, dict]) -> list[Span]:
    """Spans of these requests, all of which are sent when the application has stopped."""
    with TestClient(create_app(services)) as client:
        for method, path, options in requests:
            client.request(method, path, **options)
    return receiver.spans


def test_a_question_is_one_span(receiver: TraceReceiver, services: Services, analyst: str) -> None:
    headers = bearer(analyst, **{"X-Request-Id": "my-request"})
    before = time.time_ns()
    ask = ("POST", f"/v1/tasks/toys.colour/answers?{CANARY}", {"json": {"query": CANARY}, "headers": headers})
    [span] = spans(receiver, services, ask)
    assert (span.name, span.kind) == ("POST /v1/tasks/{task}/answers", Span.SPAN_KIND_SERVER)
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/tasks/{task}/answers",
        "http.response.status_code": 200,
        "dpicl.request_id": "my-request",
    }
    assert before <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()
    assert not span.events
    resource = {one.key: one.value.string_value for one in receiver.requests[0].resource_spans[0].resource.attributes}
    assert resource == {"service.name": "dp-icl", "service.version": version("dp-icl")}


def test_no_address_header_or_text_is_in_a_span(
    receiver: TraceReceiver, services: Services, analyst: str, toy_engine: MajorityEngine
) -> None:
    toy_engine.down = True
    strange = bearer(analyst, tracestate=f"vendor={CANARY}", baggage=f"a={CANARY}", **{"Idempotency-Key": CANARY})
    told = spans(
        receiver,
        services,
        ("POST", "/v1/tasks/toys.colour/answers", {"json": {"query": CANARY}, "headers": strange}),
        ("GET", f"/v1/releases/{CANARY}", {"headers": strange}),
        ("GET", f"/{CANARY}", {"headers": strange}),
        (CANARY, "/v1/budgets", {"headers": strange}),
        ("POST", "/v1/tasks/toys.colour/answers", {"content": CANARY * 30_000, "headers": strange}),
        ("GET", f"/admin/knowledge-bases/{CANARY}", {}),
    )
    named = [(span.name, attributes(span)["http.response.status_code"], span.status.code) for span in told]
    assert named[:4] == [
        ("POST /v1/tasks/{task}/answers", 503, Status.STATUS_CODE_ERROR),
        ("GET /v1/releases/{release_id}", 404, Status.STATUS_CODE_UNSET),
        ("GET", 404, Status.STATUS_CODE_UNSET),
        ("_OTHER /v1/budgets", 405, Status.STATUS_CODE_UNSET),
    ]
    assert named[4][0] in ("POST", "POST /v1/tasks/{task}/answers")
    assert named[4][1] == 413
    assert "GET /admin/knowledge-bases/{name}" in [name for name, _, _ in named]
    assert CANARY.encode() not in b"".join(request.SerializeToString() for request in receiver.requests)


def test_uploads_and_deletions_are_not_traced(receiver: TraceReceiver, services: Services) -> None:
    """Their results and their durations depend on the stored exemplars."""
    admin = {"headers": bearer(services.records.keys.create("admin", "admin")[1])}
    told = spans(
        receiver,
        services,
        ("DELETE", "/v1/knowledge-bases/toys/units/u1", admin),
        ("DELETE", "/v1/knowledge-bases/toys/units/nobody", admin),
        ("POST", "/v1/knowledge-bases/toys/exemplars", {**admin, "content": b'{"unit_id": "u", "text": "t"}'}),
        ("GET", "/v1/budgets", admin),
    )
    assert [span.name for span in told] == ["GET /v1/budgets"]


def test_a_callers_trace_goes_on(receiver: TraceReceiver, services: Services, analyst: str) -> None:
    parents = (f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00", CANARY)  # the second is not sampled
    asked = [("GET", "/v1/budgets", {"headers": bearer(analyst, traceparent=parent)}) for parent in parents]
    told = spans(receiver, services, *asked)
    assert [(span.trace_id.hex() == TRACE, span.parent_span_id.hex()) for span in told] == [(True, PARENT), (False, "")]


def test_a_receiver_that_is_down_disturbs_no_request(services: Services, analyst: str, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with TestClient(create_app(services)) as client:
        assert client.get("/v1/budgets", headers=bearer(analyst)).status_code == 200


def test_without_the_variable_there_are_no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert open_tracing() is None


def test_it_refuses_to_start_without_opentelemetry(dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    told = dpicl.fails("serve")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set" in told
    assert "pip install 'dp-icl[otel]'" in told


def test_spans_use_a_proxy_only_where_an_operator_names_one(
    receiver: TraceReceiver, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_proxy() as proxy:
        for name, value in proxy.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DPICL_PROXY_URL", proxy.url)
        assert len(spans(receiver, services, ("GET", "/healthz", {}))) == 1
        assert proxy.seen == []
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://192.0.2.1:4318")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        spans(receiver, services, ("GET", "/healthz", {}))
        assert proxy.seen[0].startswith(b"POST http://192.0.2.1:4318/v1/traces HTTP/1.1")


def test_certificates_of_traces_that_cannot_be_read_are_refused(dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://traces.example.org")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/ca.pem")
    assert dpicl.fails("serve").startswith("error: OTEL_EXPORTER_OTLP_CERTIFICATE: ")
