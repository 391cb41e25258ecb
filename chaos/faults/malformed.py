"""Requests that are too large, malformed, or not HTTP at all: the service refuses each, and none makes it fail."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import httpx

from chaos.world import Scenario, World

_ANSWERS = "/v1/tasks/toys.colour/answers"
_MOST_REQUESTS = 2000
_WAIT_S = 10.0
_CUT_WAIT_S = 0.3


def inflict(world: World, seconds: float) -> None:
    """Send every case, then every case again, whole or cut short at random, until the time is up."""
    ends = time.monotonic() + seconds
    statuses: Counter[str] = Counter()
    while time.monotonic() < ends and statuses.total() < _MOST_REQUESTS:
        for name, request in _cases(world):
            if statuses.total() > len(_BODIES) and world.draw.random() < 0.5:
                reply = send(world, request[: world.draw.randrange(1, len(request))], _CUT_WAIT_S)
            else:
                reply = send(world, request)
            statuses[_verdict(world, name, reply)] += 1
            if time.monotonic() > ends:
                break
    began = time.monotonic()
    world.notes["malformed"] = dict(statuses)
    world.note("malformed", began)


def send(world: World, request: bytes, wait_s: float = _WAIT_S) -> bytes:
    """Send bytes on a new connection; return the reply, empty if there is none."""
    address = httpx.URL(world.url)
    reply = b""
    with suppress(OSError), socket.create_connection((address.host, address.port or 80), timeout=wait_s) as connection:
        connection.sendall(request)
        while piece := connection.recv(65536):
            reply += piece
    return reply


def _verdict(world: World, name: str, reply: bytes) -> str:
    world.load.look(f"the reply to {name}", reply)
    if not reply:
        return "no reply"
    status = int(reply.split(maxsplit=2)[1]) if reply.startswith(b"HTTP/1.1 ") else 0
    if status == 0 or status >= 500 or (200 <= status < 300 and name not in _HARMLESS):
        world.wrong.append(f"{name} was answered with {reply[:300]!r}")
    return str(status)


def _cases(world: World) -> Iterator[tuple[str, bytes]]:
    headers = [
        "Host: x",
        f"Authorization: Bearer {world.tokens['analyst']}",
        "Content-Type: application/json",
        "Connection: close",
    ]
    for name, body in _BODIES.items():
        yield name, _request("POST", _ANSWERS, [*headers, f"Content-Length: {len(body)}"], body)
    for name, extra in _HEADERS.items():
        yield name, _request("POST", _ANSWERS, [*headers, *extra], b'{"query": "x"}')
    for name, path in _PATHS.items():
        yield name, _request("GET", path, headers)
    for name, raw in _RAW.items():
        yield name, raw
    upload = [headers[0], f"Authorization: Bearer {world.tokens['admin']}", "Connection: close"]
    for name, body in _UPLOADS.items():
        extra = ["Content-Type: application/x-ndjson", f"Content-Length: {len(body)}"]
        yield name, _request("POST", "/v1/knowledge-bases/toys/exemplars", [*upload, *extra], body)


def _request(method: str, path: str, headers: list[str], body: bytes = b"") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", *headers, "", ""]).encode("latin-1") + body


_DEEP = 100_000
_BODIES = {
    "no body": b"",
    "no JSON": b"query=x",
    "JSON cut off": b'{"query": "x',
    "deep lists": b'{"query": ' + b"[" * _DEEP + b"]" * _DEEP + b"}",
    "deep objects": b'{"query":' * 20_000 + b"1" + b"}" * 20_000,
    "NaN": b'{"query": NaN}',
    "infinity": b'{"query": {"text": -Infinity}}',
    "a huge integer": b'{"query": ' + b"9" * 200_000 + b"}",
    "a huge exponent": b'{"query": 1e999999999}',
    "a number": b'{"query": 7}',
    "null": b'{"query": null}',
    "a list": b'[{"query": "x"}]',
    "a list of fields": b'{"query": ["x"]}',
    "fields of wrong types": b'{"query": {"text": {"text": "x"}}}',
    "unknown fields": b'{"query": {"text": "x", "colour": "red"}}',
    "unknown members": b'{"query": "x", "answers": 100}',
    "invalid UTF-8": b'{"query": "\xff\xfe\xc0\x80"}',
    "a lone surrogate": b'{"query": "\\ud800"}',
    "UTF-16": '{"query": 7}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"query": 7}',
    "a large text": json.dumps({"query": "x" * 200_000}).encode(),
    "an oversized body": json.dumps({"query": "x" * 2_000_000}).encode(),
    "empty": b'{"query": ""}',
}
_HARMLESS = {"a dot path", "a slow path", "NUL in a text", "two lengths that agree"}
_HEADERS = {
    "a length too long": ["Content-Length: 9999"],
    "a length too short": ["Content-Length: 3"],
    "a negative length": ["Content-Length: -1"],
    "a length that is none": ["Content-Length: many"],
    "two lengths": ["Content-Length: 14", "Content-Length: 3"],
    "length and chunks": ["Content-Length: 14", "Transfer-Encoding: chunked"],
    "chunks that are none": ["Transfer-Encoding: chunked"],
    "an unknown encoding": ["Transfer-Encoding: gzip, sparse"],
    "a flood of headers": ["Content-Length: 14", *(f"X-{n}: {'y' * 100}" for n in range(5000))],
    "a huge header": ["Content-Length: 14", f"X-Huge: {'y' * 1_000_000}"],
    "a huge Idempotency-Key": ["Content-Length: 14", f"Idempotency-Key: {'k' * 5_000}"],
    "a folded header": ["Content-Length: 14", "X-Folded: a", " b: c"],
}
_PATHS = {
    "path traversal": "/../../../../etc/passwd",
    "traversal of static files": "/admin/static/../../../etc/passwd",
    "encoded traversal": "/admin/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "traversal of tasks": "/v1/tasks/..%2f..%2fkeys/answers",
    "NUL in a path": "/v1/releases/%00",
    "a NUL in a parameter": "/v1/audit?after=%00",
    "a huge path": "/" + "a" * 100_000,
    "a huge parameter": "/v1/audit?after=" + "9" * 10_000,
    "bad percent signs": "/v1/releases/%zz%",
    "an absolute address": "http://elsewhere.example/v1/keys",
    "an upgrade": "/v1/websocket",
}
_RAW = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "noise": bytes(range(256)) * 64,
    "an unknown version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a request line alone": b"POST " + b"\r\n\r\n",
    "an endless line": b"GET /" + b"a" * 1_000_000,
    "line feeds": b"\n" * 10_000,
}
_UPLOADS = {
    "an upload of no JSON": b"unit_id,text\n",
    "an upload of wrong fields": b'{"unit_id": "u", "text": "x"}\n',
    "an upload of wrong types": b'{"unit_id": 1, "text": {}, "colour": [], "story": null}\n',
    "an upload of NUL": b"\0" * 10_000,
    "an upload of deep lists": b"[" * _DEEP + b"\n",
    "an upload without an end": b'{"unit_id": "' + b"u" * 2_000_000,
    "an upload of invalid UTF-8": b'{"unit_id": "\xff", "text": "x", "colour": "red", "story": "s"}\n',
}


SCENARIO = Scenario("malformed", inflict, seconds=40)
