"""A service on Ray Serve that asks a remote model sanitised questions; its requests are examined at the other end.

A second model, beside the service, fits released texts to the original questions.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openai
import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from chaos.endpoint import Endpoint, modelling
from sanitization.text import open_sanitizer
from service.engines.embedding.words import minilm_words
from service.records.database import open_database
from service.records.tables import text_costs
from tests.e2e.browser import Window, chromium
from tests.e2e.serving import CANARY, Running, configured, opened, serving
from tests.laws import ALPHA, p_value
from tests.service.engines.chat_server import Asked, completion, saying

WORDS, EPSILON, KEEP = 200, 5.0, ("stopwords", "punctuation")
pytestmark = [pytest.mark.lengthy, pytest.mark.service]

SECRET = ("zebrafish", "quagga", "okapi")
"""Words that cannot come out of a sanitiser."""
REMOTE_KEY = "for-the-remote-model"  # pragma: allowlist secret
FITTED = "The platypus is with Payments."
PUBLIC = ("Can I keep a cat?", "Who pays for repairs?", "When is the rent due?", "How do I give notice?")


@dataclass(frozen=True)
class Sanitising:
    service: Running
    model: Endpoint
    beside: Endpoint
    cache: Path

    def prompts(self) -> list[str]:
        """The whole bodies of all requests that the remote model has got."""
        return [json.dumps(asked.body) for asked in self.model._server.asked]


async def label_of_each_task(asked: Asked) -> bytes:
    """The model's reply: a label of the task that the prompt belongs to."""
    return completion("Office" if asked.prompt.endswith("Where:") else "Payments")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sanitising]:
    folder = tmp_path_factory.mktemp("sanitising")
    with modelling() as model, modelling() as beside:
        model.behaviour, beside.behaviour = label_of_each_task, saying(FITTED)
        engine = {
            "name": "openai_compatible",
            "model": "elsewhere",
            "base_url": model.url,
            "isolation": "best_effort",
            "sanitize": {"epsilon": EPSILON, "keep": list(KEEP)},
            "exemplars": "local",
            "realign": {"base_url": beside.url, "model": "here"},
        }
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("DPICL_LATENCY_UNPADDED", "true")  # on a busy machine, its work is slow
            environment.setenv("DPICL_REMOTE_API_KEY", REMOTE_KEY)
            environment.setenv("DPICL_SANITIZER_WORDS", str(WORDS))
            (folder / "public.txt").write_text("\n".join(PUBLIC))
            environment.setenv("DPICL_PUBLIC_TEXTS", os.path.relpath(folder / "public.txt"))
            environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            with serving(folder, *configured(folder, engine=engine)) as service:
                yield Sanitising(service, model, beside, folder / "cache" / "dpicl")


def costs(running: Sanitising) -> list[sa.Row]:
    """The costs of all keys' texts."""
    database = open_database(running.service.database_url)
    with database.connect() as connection:
        rows = connection.execute(sa.select(text_costs).where(text_costs.c.conversation == "")).all()
    database.dispose()
    return list(rows)


def test_raw_words_are_sent_only_as_announced(running: Sanitising) -> None:
    """Unknown words are never sent, and a known one with the audited channel's probability. Exemplars stay here."""
    sanitizer = open_sanitizer("medoid_rr", minilm_words(WORDS, running.cache), EPSILON, running.cache, keep=KEEP)
    channel, count = sanitizer.served.channel, 2000
    x = sanitizer.served.vocabulary.index[channel.outputs[0]]
    before = len(running.prompts())
    asked = running.service.ask(f"{' and '.join(SECRET)}: {' '.join([channel.outputs[0]] * count)}.")
    assert asked.status_code == 200, asked.text
    assert asked.json()["cost"]["charged"] == 1
    assert "exemplars do not leave" in asked.json()["engine"]["notice"]
    (prompt,) = running.prompts()[before:]
    question = json.loads(prompt)["messages"][0]["content"].split("Ticket: ")[1].split("\nTeam:")[0]
    hidden, _, known = question.partition(": ")
    assert len(hidden.split(" and ")) == len(SECRET)
    drawn = known.removesuffix(".").split()
    counts = np.array([drawn.count(word) for word in channel.outputs])
    assert counts.sum() == count
    assert p_value(counts, count, channel.rows(np.array([x]))[0]) > ALPHA


def test_one_text_for_all_tasks_of_a_key(running: Sanitising) -> None:
    question = f"Where is my {SECRET[0]} and the new book?"
    for task in ("team", "triage", "page"):
        asked = running.service.ask(question, f"support.{task}")
        assert asked.status_code == 200, asked.text
        assert ("realigned" in asked.json()) is (task == "page"), "labels are no texts"
    sent = {prompt.split("Ticket: ")[-1].split("\\n")[0] for prompt in running.prompts() if "and the" in prompt}
    assert len(sent) == 1


def test_a_released_text_is_fitted_beside_the_service(running: Sanitising) -> None:
    """Its caller gets it fitted to the original question: over REST, by OpenAI's client, and on the command line."""
    question, seen = f"Where is my {SECRET[0]} and the new book?", running.beside._server.asked
    before = len(seen)
    answer = running.service.ask(question, "support.page").json()
    assert answer["realigned"] == FITTED
    (asked,) = list(seen)[before:]
    assert asked.body["model"] == "here"
    assert question in asked.prompt
    assert answer["text"] in asked.prompt
    assert "authorization" not in asked.headers
    assert running.model._server.asked[-1].headers["authorization"] == f"Bearer {REMOTE_KEY}"
    client = openai.OpenAI(base_url=f"{running.service.url}/v1", api_key=running.service.key)
    messages = [{"role": "user", "content": question}]
    reply = client.chat.completions.create(model="support.page", messages=messages)  # type: ignore[arg-type]
    assert reply.choices[0].message.content == FITTED
    options = ("--url", running.service.url, "--key", running.service.key)
    assert FITTED in running.service.dpicl("ask", "support.page", question, *options)
    release = running.service.get(f"/v1/releases/{answer['id']}").json()
    assert release["text"] == answer["text"]
    assert FITTED not in str(release)


def test_nothing_private_has_left(running: Sanitising) -> None:
    """The questions above left nothing private with the model or in logs, and each question was paid for once."""
    everything = "".join(running.prompts())
    assert everything
    assert not [word for word in (*SECRET, CANARY, FITTED) if word in everything]
    assert not [word for word in (*SECRET, FITTED) if word in running.service.logs()]
    assert not [asked for asked in running.beside._server.asked if CANARY in asked.prompt]
    (cost,) = [row for row in costs(running) if row.owner]
    assert (cost.texts, cost.words) == (2, 3 + 2000 + 3)


def test_http_has_the_same_ledger(running: Sanitising) -> None:
    said = running.service.post("/v1/sanitize", {"texts": [SECRET[1]], "epsilon": EPSILON}).json()
    assert said["ledger"]["charged"] == pytest.approx(EPSILON)
    assert said["ledger"]["epsilon"] == pytest.approx(2007 * EPSILON)
    body = {"texts": ["Must I pay the plumber?"] * 256, "epsilon": 25, "mechanism": "whole_rr"}
    said = running.service.post("/v1/sanitize", body).json()
    assert {item["text"] for item in said["items"]} == {PUBLIC[1]}, "another with a chance below 1e-10"
    assert said["ledger"]["epsilon"] == pytest.approx(2007 * EPSILON + 25)


def test_the_dashboard_shows_it_as_epsilon_moves(running: Sanitising) -> None:
    """A real browser shows words and their probabilities, then whole texts. Nothing is charged for it."""
    before = costs(running)
    with opened(running.service.environment) as records:
        admin = records.keys.create("Maria", "admin")[1]
    with chromium() as browser:
        window = Window(browser, viewport={"width": 360, "height": 740})
        page = window.page
        page.goto(f"{running.service.url}/admin/sanitising")
        page.get_by_label("Key", exact=True).fill(admin)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Word by word")).to_be_visible()
        window.check()
        page.get_by_role("textbox", name="Sentence").fill("The quagga and the house")
        row = page.get_by_role("row").filter(has_text="house")
        expect(row).to_be_visible()
        page.get_by_label("ε, from").fill("0.5")
        expect(page.get_by_role("definition").first).to_have_text("0.5")
        page.get_by_label("Mechanism").select_option("whole_rr")
        expect(page.get_by_role("heading", name="Texts that can come out")).to_be_visible()
        assert {text for text in PUBLIC if page.get_by_role("rowheader", name=text).count()}
        window.check()
    assert costs(running) == before
