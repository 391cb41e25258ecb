"""Redacted texts answered by a steered language model: ``dpicl serve`` with ``restore``, vLLM on the CPU, over HTTP."""

import itertools
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import numpy as np
import psutil
import pytest

from examples.tiny_model import make_tiny_model
from research.restore.model import SteeredModel
from sanitization.restore.bundle import Bundle
from tests.e2e.serving import configured, opened, own, started, stops
from tests.service.engines.steered_bundles import PROFILES, publish, right

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

TEXTS = [f"Number {number} has ___ since {day}." for number in range(6) for day in ("Monday", "dawn")]
OPTIONS = ["measles", "diabetes", "flu", "gout", "ague", "palsy", "scurvy", "typhus"]
CLEAR = 1e-3
"""Probabilities that lie this far apart come out in the same order in vLLM, which is exact to 1e-5."""


@dataclass
class Restoring:
    url: str
    key: str
    process: subprocess.Popen[bytes]
    not_ready: list[httpx.Response]
    bundles: list[tuple[Bundle, np.ndarray]]
    reference: SteeredModel

    def ask(self, bundle: Bundle, query: str, profile: int) -> httpx.Response:
        body = {"bundle": bundle.address, "bundle_sha256": bundle.sha256, "query": query, "profile": profile}
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.post(f"{self.url}/v1/restore/answers", json=body | {"mode": "steer"}, headers=headers, timeout=150)

    def expected(self, text: str, vectors: np.ndarray | None) -> str | None:
        """The answer of transformers; None if the two best are too close to call."""
        found = right(self.reference, text, vectors)
        second, first = np.sort(found)[-2:]
        return OPTIONS[int(found.argmax())] if first - second > CLEAR else None


@pytest.fixture(scope="module")
def restoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restoring]:
    folder = tmp_path_factory.mktemp("steering")
    model, root = make_tiny_model(folder / "model"), folder / "bundles"
    bundles = [publish(root, model, seed, name=name, options=OPTIONS) for seed, name in ((5, "clinic"), (6, "ward"))]
    engine = {"name": "vllm", "model": str(model), "dtype": "float32", "kv_cache_gib": 1, "enforce_eager": True}
    not_ready: list[httpx.Response] = []
    with own(folder, DPICL_RESTORE_BUNDLES=str(root)) as environment:
        with opened(environment) as records:
            key = records.keys.create("ann", "analyst")[1]
        reference = SteeredModel(model, bundles[0][0].manifest.prompt, OPTIONS)
        options = configured(folder, restore=engine)
        with started(folder, environment, *options, not_ready=not_ready.append) as (url, _, process):
            yield Restoring(url, key, process, not_ready, bundles, reference)


def test_it_is_ready_only_when_the_model_is_loaded(restoring: Restoring) -> None:
    assert any("the restore engine does not answer" in said.text for said in restoring.not_ready)
    (bundle, _), *_ = restoring.bundles
    assert restoring.ask(bundle, TEXTS[0], 1).status_code == 200


def test_several_clients_get_the_answers_of_their_own_bundles(restoring: Restoring) -> None:
    """Questions in the same batches are steered by two bundles, or not at all; each gets the answer of transformers."""
    asked, answers, steered = [], [], 0
    for text, profile in itertools.product(TEXTS, range(PROFILES)):
        plain = restoring.expected(text, None)
        said = [restoring.expected(text, vectors[profile]) for _, vectors in restoring.bundles]
        if plain is not None and None not in said:
            asked += [(bundle, text, profile) for bundle, _ in restoring.bundles]
            answers += said
            steered += plain not in said and said[0] != said[1]
    assert steered >= 4  # answers that neither the other bundle nor none would give
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda one: restoring.ask(*one), asked))
    assert [(reply.status_code, reply.json().get("answer")) for reply in replies] == [(200, one) for one in answers]


def test_it_stops_with_all_its_processes(restoring: Restoring) -> None:
    family = psutil.Process(restoring.process.pid).children(recursive=True)
    assert any(one.name().startswith("VLLM::") or "spawn_main" in " ".join(one.cmdline()) for one in family)
    stops(restoring.process)
