"""A bundle steers a real vLLM on the CPU as it steered transformers, and is asked as the service asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.tiny_model import make_tiny_model
from research.restore.model import SteeredModel
from sanitization.restore.bundle import Bundle
from service.answering.restoring import Mode, RedactedQuery, Restoring, SteeringNotServedError, task_spec
from service.engines.configs import VllmConfig
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError
from tests.service.conftest import MajorityEngine
from tests.service.engines.steered_bundles import greedy, publish, right

pytestmark = [pytest.mark.vllm, pytest.mark.lengthy]


ANSWER_TOKENS = 12


class Running:
    """The engine, and the service's way to it."""

    def __init__(self, folder: Path):
        from service.engines.vllm.isolation import isolate

        self.model = make_tiny_model(folder / "model")
        self.root = folder / "bundles"
        self.bundle, self.vectors = publish(self.root, self.model)
        self.others, _ = publish(self.root, self.model, model={"name": "other", "sha256": "1" * 64})
        config = VllmConfig(
            name="vllm",
            model=str(self.model),
            dtype="float32",
            enforce_eager=True,
            kv_cache_gib=1,
            max_answer_tokens=ANSWER_TOKENS,
        )
        isolation = isolate(config)
        from service.engines.vllm.steered import SteeredVllm

        self.runner = asyncio.Runner()
        self.engine = SteeredVllm(config, isolation, self.root)

    def restore(self, text: str, profile: int | None) -> np.ndarray:
        asking = self.engine.restore(task_spec(self.bundle, "ann"), text, self.bundle.sha256, profile)
        return self.runner.run(asyncio.wait_for(asking, 120))

    def write(self, text: str, profile: int | None) -> str:
        asking = self.engine.restore_text(
            task_spec(self.bundle, "ann", free_text=True), text, self.bundle.sha256, profile
        )
        return self.runner.run(asyncio.wait_for(asking, 120))

    def answer(self, bundle: Bundle, query: str, profile: int, mode: Mode) -> str:
        restoring = Restoring(self.root, MajorityEngine(), self.engine, timeout_s=60, max_in_flight=4)
        asked = RedactedQuery(
            bundle=bundle.address, bundle_sha256=bundle.sha256, query=query, profile=profile, mode=mode
        )
        return self.runner.run(restoring.answer(asked, "ann"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    one = Running(tmp_path_factory.mktemp("steered"))
    yield one
    one.engine.close()
    one.runner.close()


@pytest.fixture(scope="module")
def reference(running: Running) -> SteeredModel:
    return SteeredModel(running.model, running.bundle.manifest.prompt, running.bundle.manifest.options)


def test_profiles_steer_as_in_training(running: Running, reference: SteeredModel) -> None:
    text = "Ann has ___ since Monday."
    plain = right(reference, text, None)
    assert running.restore(text, None) == pytest.approx(plain, abs=1e-5)
    for profile in range(4):
        expected = right(reference, text, running.vectors[profile])
        assert running.restore(text, profile) == pytest.approx(expected, abs=1e-5)
        assert (np.abs(expected - plain).max() > 1e-3) == (profile > 0)


def test_the_service_steers_or_fills_in(running: Running, reference: SteeredModel) -> None:
    options, medoids = running.bundle.manifest.options, running.bundle.book.medoids
    for profile in range(1, 4):
        steered = right(reference, "has ___ now", running.vectors[profile])
        assert running.answer(running.bundle, "has ___ now", profile, "steer") == options[int(steered.argmax())]
        filled = right(reference, f"has {', '.join(medoids[profile])} now", None)
        assert running.answer(running.bundle, "has ___ now", profile, "text") == options[int(filled.argmax())]
    whole = right(reference, "has nothing now", None)  # nothing was taken out, so nothing is put back
    assert running.answer(running.bundle, "has nothing now", 3, "steer") == options[int(whole.argmax())]


def test_free_text_is_steered_while_it_is_written(running: Running, reference: SteeredModel) -> None:
    """Each text is what transformers writes; a worker that steers the first token alone writes another one."""
    decode = reference._tokenizer.decode
    differs = 0
    for text in ("Ann has ___ since Monday.", "Bob reports ___ at dawn."):
        for profile in (None, 0, 1, 2, 3):
            vectors = None if profile is None else running.vectors[profile]
            tokens = greedy(reference, text, vectors, ANSWER_TOKENS)
            written = running.write(text, profile)
            expected = decode(tokens, skip_special_tokens=True).strip()
            assert written
            assert expected.startswith(written), (profile, expected, written)  # vLLM stops at the end of an answer
            if profile:
                first = greedy(reference, text, vectors, 1)
                once = [*first, *_unsteered_after(reference, text, first)]
                differs += not decode(once, skip_special_tokens=True).strip().startswith(written)
    assert differs >= 2


def _unsteered_after(reference: SteeredModel, text: str, first: list[int]) -> list[int]:
    """The planted bug: the prompt's last token is steered, and none of those written."""
    tokens = reference._tokens([text])[0] + first
    for _ in range(ANSWER_TOKENS - 1):
        with torch.inference_mode():
            tokens.append(int(reference._forward([tokens], torch.tensor([[len(tokens) - 1]]))[0, 0].argmax()))
    return tokens[-ANSWER_TOKENS + 1 :]


def test_a_bundle_of_another_model_steers_nothing(running: Running) -> None:
    assert running.runner.run(running.engine.bundles()) == {running.bundle.sha256}
    with pytest.raises(SteeringNotServedError):
        running.answer(running.others, "has ___ now", 1, "steer")
    assert running.answer(running.others, "has ___ now", 1, "text") in running.others.manifest.options


def test_refusals_leave_the_engine_alone(running: Running) -> None:
    before = running.restore("has ___", 2)
    for profile in (4, -1, 10**12):
        with pytest.raises(EngineUnavailableError):
            running.restore("has ___", profile)
    with pytest.raises(UnanswerableQueryError):
        running.restore("word " * 5000, 1)
    np.testing.assert_array_equal(running.restore("has ___", 2), before)


def test_a_model_without_bundles_does_not_start(running: Running, tmp_path: Path) -> None:
    from service.engines.vllm.isolation import Isolation
    from service.engines.vllm.steered import SteeredVllm

    other = make_tiny_model(tmp_path / "model", seed=1)
    config = VllmConfig(name="vllm", model=str(other))
    with pytest.raises(EngineUnavailableError):
        SteeredVllm(config, Isolation(""), running.root)
