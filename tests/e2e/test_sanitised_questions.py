"""A service on Ray Serve that asks a remote model sanitised questions; what it sends is looked at on the other side."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
import yaml

from sanitization.text import open_sanitizer
from service.cli.serve import DEFAULT_CONFIG
from service.embedding.words import minilm_words
from service.records.database import open_database
from service.records.tables import text_costs
from tests.chaos.endpoint import Endpoint, modelling
from tests.e2e.serving import CANARY, Running, serving
from tests.laws import ALPHA, p_value
from tests.service.engines.chat_server import saying

WORDS, EPSILON, KEEP = 200, 5.0, ("stopwords", "punctuation")
SECRET = ("zebrafish", "quagga", "okapi")
"""No words that can come out of a sanitiser."""
PUBLIC = ("Can I keep a cat?", "Who pays for repairs?", "When is the rent due?", "How do I give notice?")


@dataclass(frozen=True)
class Sanitising:
    service: Running
    model: Endpoint
    cache: Path

    def prompts(self) -> list[str]:
        """All that arrived so far, whole bodies."""
        return [json.dumps(asked.body) for asked in self.model._server.asked]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sanitising]:
    folder = tmp_path_factory.mktemp("sanitising")
    with modelling() as model:
        model.behaviour = saying("Ledger")
        config = yaml.safe_load(DEFAULT_CONFIG.read_text())
        config["applications"][0]["args"]["engine"] = {
            "name": "openai_compatible",
            "model": "elsewhere",
            "base_url": model.url,
            "isolation": "best_effort",
            "sanitize": {"epsilon": EPSILON, "keep": list(KEEP)},
            "exemplars": "local",
        }
        (folder / "serve.yaml").write_text(yaml.safe_dump(config))
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("DPICL_LATENCY_GRAIN_MS", "2000")
            environment.setenv("DPICL_SANITIZER_WORDS", str(WORDS))
            (folder / "public.txt").write_text("\n".join(PUBLIC))
            environment.setenv("DPICL_PUBLIC_TEXTS", os.path.relpath(folder / "public.txt"))
            environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            with serving(folder, "--config", str(folder / "serve.yaml")) as service:
                yield Sanitising(service, model, folder / "cache" / "dpicl")


def test_no_raw_word_is_sent_but_as_announced(running: Sanitising) -> None:
    """Words that nothing knows never; a known one as often as the audited channel says. Exemplars stay."""
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
    for task in ("queue", "triage", "page"):
        asked = running.service.ask(question, f"support.{task}")
        assert asked.status_code == 200, asked.text
    sent = {prompt.split("Ticket: ")[-1].split("\\n")[0] for prompt in running.prompts() if "and the" in prompt}
    assert len(sent) == 1


def test_nothing_private_has_left(running: Sanitising) -> None:
    """After the questions above: neither to the model, nor into logs; and each question was paid for once."""
    everything = "".join(running.prompts())
    assert everything
    assert not [word for word in (*SECRET, CANARY) if word in everything]
    assert not [word for word in SECRET if word in running.service.logs()]
    database = open_database(running.service.database_url)
    with database.connect() as connection:
        rows = connection.execute(sa.select(text_costs).where(text_costs.c.conversation == "")).all()
    database.dispose()
    (cost,) = [row for row in rows if row.owner]
    assert (cost.texts, cost.words) == (2, 3 + 2000 + 3)


def test_http_has_the_same_ledger(running: Sanitising) -> None:
    headers = {"Authorization": f"Bearer {running.service.key}"}
    body = {"texts": [SECRET[1]], "epsilon": EPSILON}
    said = httpx.post(f"{running.service.url}/v1/sanitize", json=body, headers=headers, timeout=60).json()
    assert said["ledger"]["charged"] == pytest.approx(EPSILON)
    assert said["ledger"]["epsilon"] == pytest.approx(2007 * EPSILON)
    body = {"texts": ["Must I pay the plumber?"] * 256, "epsilon": 25, "mechanism": "whole_rr"}
    said = httpx.post(f"{running.service.url}/v1/sanitize", json=body, headers=headers, timeout=60).json()
    assert {item["text"] for item in said["items"]} == {PUBLIC[1]}, "another with a chance below 1e-10"
    assert said["ledger"]["epsilon"] == pytest.approx(2007 * EPSILON + 25)
