"""Canary strings in exemplars, questions, tokens and every kind of bad request: none may come out anywhere.

The search covers everything that a running service leaves or shows outside its database and its engine: its output,
every file of Ray's session, processes' titles, metrics, the audit trail, traces, the dashboard. No file may show how
long a call between processes took, and the database may not hold questions, tokens, unit ids or exemplars in the clear.
"""

import base64
import json
import os
import re
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from exemplar_store import Layout
from service.answering.plans.signing import sign
from tests.e2e.serving import calibrated, embedder, opened, started
from tests.processes import answers, wait_for
from tests.service.gateway.telemetry.trace_receiver import TraceReceiver, receiving

pytestmark = [pytest.mark.lengthy, pytest.mark.service]

PLAN = """
knowledge_base: toys
budget: {epsilon: 4, delta: 1.0e-4}
tasks:
  colour:
    kind: classify
    labels: [red, blue]
    label_field: colour
    prompt: {exemplar: "{text}: {colour}", query: "{text}:"}
    shots: 2
    ensemble: 20
    answers: 100
    mechanism: {type: rnm_gaussian, vote: hard}
  story:
    kind: generate
    response_field: story
    prompt: {exemplar: "{text}: {story}", query: "{text}:"}
    shots: 2
    ensemble: 20
    answers: 5
    candidates: 2
    public_answers: [A red kite rises., A blue boat sinks.]
    mechanism: {type: embedding_mean}
"""
_AT_REST = ("exemplar", "unit", "upload", "token", "ask", "secret")
"""Plants that the database may not hold in the clear. It does hold a caller's Idempotency-Key, for example."""


class Canaries(dict[str, str]):
    """Canary strings by where they are planted."""

    def __call__(self, where: str) -> str:
        """The canary of a place, made when it is first asked for."""
        return self.setdefault(where, f"{where}canary{secrets.token_hex(8)}")


_TIMES = re.compile(rb"[A-Z]+ \S+ (?:\d{3}|OK|ERROR) [\d.]+ms|Execution time: mean")
"""Serve's access log, and Ray's statistics of calls between its processes: both show times before padding."""


@dataclass(frozen=True)
class Service:
    """A running service and what was planted in it."""

    url: str
    folder: Path
    log: Path
    process: psutil.Process
    traces: TraceReceiver
    plant: Canaries

    @property
    def admin(self) -> str:
        return self.plant["tokenadmin"]

    @property
    def analyst(self) -> str:
        return self.plant["tokenanalyst"]

    def send(self, method: str, path: str, *statuses: int, key: str | None = None, **options) -> httpx.Response:
        """Send a request, which must be answered with one of these statuses."""
        headers = {"Authorization": f"Bearer {key or self.analyst}", **options.pop("headers", {})}
        response = httpx.request(method, self.url + path, headers=headers, timeout=120, **options)
        assert response.status_code in statuses, (method, path, response.status_code, response.text)
        return response

    def ask(self, query: object, *statuses: int, task: str = "toys.colour", **options) -> httpx.Response:
        return self.send("POST", f"/v1/tasks/{task}/answers", *statuses, json={"query": query}, **options)

    def upload(self, rows: str, *statuses: int, knowledge_base: str = "toys") -> None:
        """Upload JSON lines."""
        path, lines = f"/v1/knowledge-bases/{knowledge_base}/exemplars", {"Content-Type": "application/x-ndjson"}
        self.send("POST", path, *statuses, key=self.admin, content=rows, headers=lines)

    def processes(self, title: str = "") -> list[psutil.Process]:
        """The service's processes with this text in their title."""
        found = []
        for process in [self.process, *self.process.children(recursive=True)]:
            try:
                if title in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                pass
        return found

    def session(self) -> Path:
        """The folder where this service's Ray writes."""
        titles = " ".join(" ".join(process.cmdline()) for process in self.processes("session_"))
        found = re.search(r"(/[^\s=]*/session_\d[\d_-]+)", titles)
        assert found, titles
        return Path(found[1])


@contextmanager
def planted(folder: Path, *options: str, **environment: str) -> Iterator[Service]:
    """Run ``dpicl serve`` with 80 toys, another with a canary in every field, and canaries as secrets in settings."""
    plant = Canaries()
    plant["secretkey"] = base64.b64encode(secrets.token_bytes(32)).decode()
    with receiving() as traces:
        environment = {
            **os.environ,
            "DPICL_DATABASE_URL": f"sqlite:///{folder}/toys.sqlite",
            "DPICL_ENCRYPTION_KEY": plant["secretkey"],
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-own={plant('secretheader')}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            **environment,
        }
        layout = Layout(("text", "colour", "story"))
        toys = [{"unit_id": f"u{i}", "text": f"toy {i}", "colour": "red", "story": "It flies."} for i in range(80)]
        toys.append({"unit_id": plant("unit"), **{name: plant(f"exemplar{name}") for name in layout.fields}})
        with opened(environment) as records:
            records.create_knowledge_base(
                "toys", epsilon=8, delta=2e-4, public_size=80, fields=layout.fields, embedded_field="text"
            )
            rows = (layout.row(number, toy) for number, toy in enumerate(toys, start=1))
            records.ingest("toys", rows, embedder().embed_many, by="e2e")
            sign(records, calibrated(PLAN, 80), "e2e")
            for role in ("admin", "analyst"):
                _, plant[f"token{role}"] = records.keys.create(role, role)
        with started(folder, environment, *options) as (url, log, process):
            yield Service(url, folder, log, psutil.Process(process.pid), traces, plant)


def ask_well(service: Service) -> None:
    """Make well-formed requests of every kind."""
    service.ask(service.plant("askclassify"), 200, headers={"Idempotency-Key": service.plant("idempotency")})
    service.ask({"text": service.plant("askfields")}, 200)
    for i in range(5):
        service.ask(f"{service.plant('story')} {i}", 200, task="toys.story")  # all that the task has
    service.ask(f"{service.plant('refused')}", 402, task="toys.story")
    message = [{"role": "user", "content": service.plant("askchat")}]
    service.send("POST", "/v1/chat/completions", 200, json={"model": "toys.colour", "messages": message})
    exemplars = [{"text": service.plant("previewtext"), "colour": "red"}] * 10
    trial = {"query": service.plant("previewquery"), "exemplars": exemplars}
    service.send("POST", "/v1/tasks/toys.colour/preview", 200, json=trial)
    row = {"unit_id": service.plant("uploadunit"), "text": service.plant("uploadtext"), "colour": "red", "story": "s"}
    service.upload(json.dumps(row), 200, 201)
    service.send("DELETE", f"/v1/knowledge-bases/toys/units/{row['unit_id']}", 200, 204, key=service.admin)


def ask_badly(service: Service) -> None:
    """Make bad requests, for every part of the service that refuses some."""
    plant, send, admin = service.plant, service.send, service.admin
    answers, chat = "/v1/tasks/toys.colour/answers", "/v1/chat/completions"
    service.ask({"field": plant("askfield")}, 422)
    service.ask({plant("askname"): "x"}, 422)
    service.ask([plant("asklist")], 422)
    service.ask(plant("asklong") * 5_000, 413, 422)
    service.ask(plant("askhuge") * 20_000, 413)
    service.ask(plant("asknul") + "\0", 200, 422)
    service.ask(plant("asktask"), 404, task=f"toys.{plant('task')}")
    service.ask("again", 200, headers={"Idempotency-Key": plant("conflict")})
    service.ask(plant("askconflict"), 422, headers={"Idempotency-Key": plant("conflict")})
    service.ask(plant("asklongkey"), 422, headers={"Idempotency-Key": plant("longkey") * 20})
    # A lone surrogate is valid JSON, but text with it cannot be encoded.
    surrogate = '{"query": "\\ud800' + plant("asksurrogate") + '"}'
    as_json = {"Content-Type": "application/json"}
    send("POST", answers, 200, 400, 422, 500, content=surrogate, headers=as_json)
    send("POST", answers, 400, 422, content='{"query": ' + plant("askjson"), headers=as_json)
    send("POST", answers, 400, 422, content=plant("askbytes").encode() + b"\xff\xfe", headers=as_json)
    send("POST", answers, 415, 422, content=plant("asktext"), headers={"Content-Type": "text/" + plant("media")})
    send("POST", answers, 422, json={"query": "x", plant("extrakey"): plant("extravalue")})
    send("POST", chat, 404, json={"model": plant("model"), "messages": [{"role": "user", "content": "x"}]})
    send("POST", chat, 422, json={"model": "toys.colour", "messages": [{"role": plant("role"), "content": "x"}]})
    send("POST", chat, 422, json={"model": "toys.colour", "messages": plant("messages"), "stream": plant("stream")})
    send("POST", "/v1/tasks/toys.colour/preview", 422, json={"query": "x", "exemplars": [{plant("previewname"): "y"}]})
    send("POST", "/v1/tasks/toys.colour/preview", 422, json={"query": "x", "exemplars": plant("previewall")})

    for bad in (
        plant("uploadline"),
        json.dumps({"unit_id": "u", plant("uploadfield"): "x"}),
        json.dumps({"unit_id": plant("uploadid"), "text": {"a": plant("uploadvalue")}, "colour": "red", "story": "s"}),
        '{"unit_id": "u", "text": "' + plant("uploadopen"),
    ):
        service.upload(bad, 400, 422)
    service.upload("{}", 404, knowledge_base=plant("kb"))
    send("DELETE", f"/v1/knowledge-bases/toys/units/{plant('unitunknown')}", 200, 404, key=admin)
    send("DELETE", f"/v1/knowledge-bases/toys/units/{plant('unitanalyst')}", 403)
    plans = "/v1/knowledge-bases/toys/plans"
    send("POST", plans, 400, 422, key=admin, content=PLAN.replace('{text}:"', "{" + plant("planfield") + '}"'))
    send("POST", plans, 400, 422, key=admin, content="tasks: [" + plant("planyaml"))
    send("POST", "/v1/keys", 422, key=admin, json={"name": "x", "role": plant("keyrole")})
    send("POST", "/v1/keys", 422, key=admin, json={plant("keyfield"): plant("keyvalue")})

    send("GET", "/v1/budgets", 401, key="dpicl_" + plant("tokenunknown"))
    send("GET", "/v1/budgets", 401, headers={"Authorization": "Basic " + plant("tokenbasic")})
    send("GET", f"/v1/releases/{plant('release')}", 404)
    send("DELETE", f"/v1/keys/{plant('key')}", 404, key=admin)
    send("GET", f"/{plant('path')}?{plant('querystring')}={plant('parameter')}", 404)
    send("GET", f"/v1/releases?after={plant('cursor')}", 422, key=admin)
    send(plant("method").upper(), "/v1/budgets", 400, 404, 405)
    send("PUT", f"/v1/keys/{plant('put')}", 405)
    strange = {"User-Agent": plant("agent"), "Referer": plant("referer"), "Cookie": f"dpicl_session={plant('cookie')}"}
    strange |= {"tracestate": f"a={plant('tracestate')}", "baggage": f"a={plant('baggage')}", "X-Own": plant("header")}
    send("GET", f"/admin/{plant('page')}", 200, 303, 404, headers=strange)
    signing = {"Origin": service.url}
    send("POST", "/admin/sign-in", 401, data={"key": plant("tokensignin"), "next": plant("next")}, headers=signing)
    for raw in (
        f"GET /{plant('rawpath')} HTTP/1.1\r\nHost: x\r\n{plant('rawheader')}\r\n\r\n",
        f"{plant('rawmethod')} / HTTP/9.{plant('rawversion')}\r\n\r\n",
        f"POST {answers} HTTP/1.1\r\nHost: x\r\nContent-Length: {plant('rawlength')}\r\n\r\n",
        f"POST {answers} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{plant('rawchunk')}\r\n",
        f"POST {answers} HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{plant('rawshort')}",
        f"GET /{plant('websocket')}?{plant('wsquery')} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ):
        with socket.create_connection(httpx.URL(service.url).netloc.decode().split(":"), timeout=5) as connection:
            connection.sendall(raw.encode())
            connection.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                connection.recv(4096)


def break_things(service: Service) -> None:
    """Cause other failures: missing tables, callers who hang up, and killed processes."""
    with sqlite3.connect(service.folder / "toys.sqlite", isolation_level=None, timeout=60) as database:
        for table, answered in (("releases", 500), ("tasks", 500), ("api_keys", 500), ("exemplars", 200)):
            database.execute(f"ALTER TABLE {table} RENAME TO gone")
            service.ask(service.plant(f"ask{table.replace('_', '')}"), answered, 503)
            row = {"unit_id": service.plant("unitgone"), "text": service.plant("uploadgone")}
            service.upload(json.dumps({**row, "colour": "red", "story": "s"}), 200, 201, 500, 503)
            units = "/v1/knowledge-bases/toys/units/"
            service.send("DELETE", units + service.plant("unitgone"), 200, 204, 404, 500, 503, key=service.admin)
            database.execute(f"ALTER TABLE gone RENAME TO {table}")
    database.close()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{service.url}/v1/tasks/toys.colour/answers",
            json={"query": service.plant("askhangup")},
            headers={"Authorization": f"Bearer {service.analyst}"},
            timeout=httpx.Timeout(5, read=0.02),
        )
    for deployment in ("EmbedderDeployment", "Ingress"):
        [replica] = service.processes(f"ray::ServeReplica:dp-icl:{deployment}")
        with ThreadPoolExecutor(8) as pool:
            questions = [f"{service.plant('askkilled' + deployment.lower())} {i}" for i in range(8)]
            asked = [pool.submit(service.ask, question, 200, 429, 500, 503) for question in questions]
            time.sleep(0.05)
            replica.kill()
            for one in asked:
                one.result()
        assert wait_for(lambda: answers(f"{service.url}/readyz"), 180), service.log.read_text()[-3000:]


def shown(service: Service) -> Mapping[str, bytes]:
    """Everything that the running service shows to an admin."""
    admin = service.admin
    with httpx.Client(
        base_url=service.url, headers={"Origin": service.url}, timeout=60, follow_redirects=True
    ) as browser:
        assert browser.post("/admin/sign-in", data={"key": admin}).url.path == "/admin/"
        tabs = [
            f"/knowledge-bases/toys{tab}" for tab in ("", "/plans", "/usage", "/releases", "/exemplars", "/settings")
        ]
        pages = {f"page {path}": browser.get(f"/admin{path}") for path in ("/", *tabs, "/keys", "/audit")}
    assert {page.status_code for page in pages.values()} == {200}
    told = {
        path: service.send("GET", path, 200, key=admin)
        for path in ("/metrics", "/v1/audit/export", "/v1/budgets", "/v1/knowledge-bases/toys", "/v1/keys")
    }
    titles = "\n".join(" ".join(process.cmdline()) for process in service.processes())
    return {name: response.content for name, response in (pages | told).items()} | {"processes": titles.encode()}


def leaks(service: Service, session: Path, told: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """The canaries that came out, each with its place; complete once the service has stopped and all is written."""
    files = [service.log, *(path for path in session.rglob("*") if path.is_file() and not path.is_symlink())]
    places = {str(path): path.read_bytes() for path in files} | dict(told)
    places["traces"] = b"".join(request.SerializeToString() for request in service.traces.requests)
    at_rest = b"".join(path.read_bytes() for path in service.folder.glob("toys.sqlite*"))
    found = {
        (where, place) for place, text in places.items() for where, c in service.plant.items() if c.encode() in text
    }
    stored = {(w, "the database") for w, c in service.plant.items() if w.startswith(_AT_REST) and c.encode() in at_rest}
    timed = {("times of calls", place) for place, text in places.items() if _TIMES.search(text)}
    return found | stored | timed


def test_no_canary_comes_out(tmp_path: Path) -> None:
    with planted(tmp_path) as service:
        session = service.session()
        ask_well(service)
        ask_badly(service)
        break_things(service)
        ask_well(service)
        told = shown(service)
    assert len(service.traces.spans) > 3
    assert any((session / "logs").rglob("*"))
    assert leaks(service, session, told) == set()
