"""Steering a real Llama: equation 4, at the right positions, in the right heads."""

import json
from pathlib import Path

import pytest
import torch

from examples.tiny_model import make_tiny_model
from research.restore.model import SteeredModel, UnsupportedModelError
from sanitization.digests import model_digest

pytestmark = pytest.mark.model

TEXTS = ["a ticket about refunds", "hello", "where is my parcel, please? I ordered it long ago."]
OPTIONS = ["yes", "no", "perhaps not at all"]
HEADS = [(0, 1), (1, 0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> SteeredModel:
    return SteeredModel(folder, "Ticket: {text}\nAnswer:", OPTIONS)


def vectors(count: int, model: SteeredModel) -> torch.Tensor:
    return torch.randn(count, len(HEADS), model.head_size, generator=torch.Generator().manual_seed(1))


def by_hand(model: SteeredModel, text: str, option: int, steering: torch.Tensor | None) -> float:
    """One text, one option, no padding: equation 4 written out in the projections' forward."""
    prompt = model._tokens([text])[0]
    answer = model._options[option]
    originals = [layer.forward for layer in model.layers]
    if steering is not None:
        for (layer, head), vector in zip(HEADS, steering, strict=True):

            def forward(u: torch.Tensor, head: int = head, vector: torch.Tensor = vector, old=originals[layer]):
                u = u.clone()
                for at in range(len(prompt) - 1, u.shape[1]):
                    piece = slice(head * model.head_size, (head + 1) * model.head_size)
                    u[0, at, piece] += u[0, at, piece].norm() * vector
                return old(u)

            model.layers[layer].forward = forward  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            logits = model._model(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
    finally:
        for layer, old in zip(model.layers, originals, strict=True):
            layer.forward = old  # type: ignore[method-assign]
    return sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(answer))


@pytest.mark.parametrize("steered", [False, True])
def test_batches_equal_equation_4_by_hand(steered: bool, model: SteeredModel) -> None:
    steering = vectors(3, model) if steered else None
    found = model.log_probabilities(TEXTS, steering, HEADS)
    for row, text in enumerate(TEXTS):
        for option in range(3):
            expected = by_hand(model, text, option, None if steering is None else steering[row])
            assert float(found[row, option]) == pytest.approx(expected, abs=1e-4)


def test_steering_changes_something_and_leaves_nothing_behind(model: SteeredModel) -> None:
    before = model.log_probabilities(TEXTS)
    steered = model.log_probabilities(TEXTS, vectors(3, model), HEADS)
    assert (before - steered).abs().min(dim=1).values.max() > 0.01
    torch.testing.assert_close(model.log_probabilities(TEXTS), before, rtol=0, atol=0)
    still = model.log_probabilities(TEXTS, torch.zeros(3, 2, model.head_size), HEADS)
    torch.testing.assert_close(still, before)


def test_one_token_options_take_the_short_way_to_the_same(folder: Path, model: SteeredModel) -> None:
    letters = [option for option in "abcdefgh" if len(model._tokenizer.encode(f" {option}")) == 1][:2]
    short = SteeredModel(folder, "Ticket: {text}\nAnswer:", letters)
    long = SteeredModel(folder, "Ticket: {text}\nAnswer:", [*letters, OPTIONS[2]])
    steering = vectors(3, short)
    torch.testing.assert_close(
        short.log_probabilities(TEXTS, steering, HEADS),
        long.log_probabilities(TEXTS, steering, HEADS)[:, :2],
        atol=1e-4,
        rtol=0,
    )
    chosen = torch.tensor([[1, 0], [0, 1], [1, 1]])
    torch.testing.assert_close(
        short.log_probabilities(TEXTS, steering, HEADS, chosen),
        short.log_probabilities(TEXTS, steering, HEADS).gather(1, chosen),
    )


def test_states_are_what_the_projection_sees(model: SteeredModel) -> None:
    states = model.states(TEXTS, batch=2)
    assert states.shape == (3, len(model.layers), model.heads, model.head_size)
    seen: list[torch.Tensor] = []
    with model.layers[1].register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        model._forward(model._tokens(TEXTS[2:]), torch.zeros(1, 1, dtype=torch.int64))
    torch.testing.assert_close(states[2, 1].flatten(), seen[0][0, -1], atol=1e-5, rtol=0)


def test_a_model_without_plain_projections_is_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    make_tiny_model(tmp_path)
    GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=2048)).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="o_proj"):
        SteeredModel(tmp_path, "{text}", ["a", "b"])
    with pytest.raises(UnsupportedModelError):
        SteeredModel(make_tiny_model(tmp_path / "llama"), "{text}", ["a", "a"])


def test_every_file_of_a_model_counts(folder: Path, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path)
    assert model_digest(other) == model_digest(folder)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-4}))
    assert model_digest(other) != model_digest(folder)
    (other / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="safetensors"):
        model_digest(other)
