"""Whole texts for one ε."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from sanitization.whole import WholeTextSanitizer, open_whole

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(5, 16))
VECTORS = np.repeat(CENTRES, 40, axis=0) + 0.3 * RNG.normal(size=(200, 16))
TEXTS = [f"Text {at}, of topic {at // 40}." for at in range(200)]


def embed(texts: Sequence[str]) -> np.ndarray:
    """A text that names a topic is near its centre, any other somewhere."""
    return np.array([CENTRES[int(text[-1]) % 5] if text[-1:].isdigit() else np.ones(16) for text in texts])


def opened(epsilon: float, folder: Path) -> WholeTextSanitizer:
    return open_whole(TEXTS, VECTORS, epsilon, folder, embed)


def test_one_epsilon_for_any_text(tmp_path: Path) -> None:
    sanitizer = opened(3, tmp_path)
    channel = sanitizer.served.channel
    for text in ("", "on topic 2", "the same\n\tat length, " * 200 + "4", "\ud800", TEXTS[17]):
        done = sanitizer.sanitize(text)
        assert done.text in TEXTS
        assert (done.charged, done.tokens) == (1, 1), "length does not show"
        assert done.epsilon_text == sanitizer.epsilon == pytest.approx(3, abs=1e-5)
        (law,) = channel.rows(sanitizer.served.places([text], embed))
        assert math.log(law.max() / law.min()) <= 3
    assert "as a whole" in sanitizer.guarantee
    assert sanitizer.released_as_public == ["the number and order of texts", "which of your texts are equal"]


def test_texts_are_drawn_by_the_audited_rows(tmp_path: Path) -> None:
    sanitizer = opened(3, tmp_path)
    channel, text = sanitizer.served.channel, "on topic 2"
    (law,) = channel.rows(sanitizer.served.places([text], embed))
    drawn = [one.text for one in sanitizer.sanitize_all([text] * 20_000)]
    seen = [drawn.count(output) for output in channel.outputs]
    assert chisquare(seen, 20_000 * law).pvalue > 1e-9
    near = channel.outputs[int(law.argmax())]
    assert near.endswith("topic 2."), "what is likeliest is on the topic"


def test_a_larger_epsilon_takes_more_texts(tmp_path: Path) -> None:
    """There are five clusters of 40 texts.

    At a moderate ε, an output stands for several public texts; at a large one, every public text is an output.
    """
    counts = [len(opened(epsilon, tmp_path).served.channel.outputs) for epsilon in (0.5, 4, 6, 20)]
    assert counts[0] < 5
    assert 5 <= counts[1] <= counts[2] < 60
    assert counts[3] == 200


def test_the_choice_is_kept(tmp_path: Path) -> None:
    first = opened(3, tmp_path)
    (file,) = tmp_path.glob("*.npz")
    before = file.stat().st_mtime_ns
    assert opened(3, tmp_path).artifact == first.artifact
    assert file.stat().st_mtime_ns == before
    assert opened(2, tmp_path).artifact.digest != first.artifact.digest


@pytest.mark.parametrize(
    ("texts", "epsilon", "said"),
    [
        (TEXTS[:3], 3, "4 to 6,000 .* 3"),
        ([*TEXTS[:9], TEXTS[0]], 3, "different"),
        (TEXTS, 26, "not 26"),
        (TEXTS, 0, "not 0"),
    ],
)
def test_refusals(texts: list[str], epsilon: float, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        open_whole(texts, VECTORS[: len(texts)], epsilon, tmp_path, embed)
