"""Cape in context: every context of small vocabularies is enumerated, and a planted leak is found."""

import hashlib
import itertools
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LlamaForCausalLM

from sanitization.audit import audit
from sanitization.causal_model import CausalModel, ContextModelError
from sanitization.contextual import (
    CONTEXTS,
    ContextualSanitizer,
    InContext,
    Shape,
    Step,
    in_contexts,
    open_contextual,
)
from sanitization.published.cape import Cape, RankedCape, clipped
from sanitization.table import TOTAL
from sanitization.text import TextError
from sanitization.vocabulary import Vocabulary
from tests.sanitization.made_up import Rows, letter_words

pytestmark = pytest.mark.model

N = 5
SMALL = letter_words(N)
EPSILON = 3.0


@dataclass
class Whimsical:
    """A context model whose logits depend on every character that was read."""

    words: Sequence[str]
    said: str = ""
    digest: str = "whimsical"

    def open(self) -> "Whimsical":
        return replace(self, said="")

    def read(self, text: str) -> None:
        self.said += text

    def logits(self, *, spaced: bool) -> np.ndarray:
        seed = hashlib.sha256(f"{self.said}{spaced}".encode()).digest()
        return 9 * np.random.default_rng(list(seed)).random(len(self.words)) - 20


class Leaking(ContextualSanitizer):
    """The bug that the guarantee depends on: the model reads the words as they were."""

    def _shown(self, step: Step) -> str:
        return step.token.text


def opened(folder: Path, epsilon: float = EPSILON, **options: object) -> ContextualSanitizer:
    keep = ["stopwords", "punctuation", "case"]
    return open_contextual(Whimsical, SMALL, epsilon, folder, keep=keep, **options)  # type: ignore[arg-type]


def joint(sanitizer: ContextualSanitizer, form: str, words: int) -> Rows:
    """P(outputs | inputs) of a text of some words, over all of them: (Nʷ, Nʷ)."""
    every = list(itertools.product(range(N), repeat=words))
    law = np.empty((len(every), len(every)))
    for x, inputs in enumerate(every):
        for y, outputs in enumerate(every):
            forced = iter(outputs)
            _, steps = sanitizer.trace(form.format(*(SMALL.words[at] for at in inputs)), lambda *_: next(forced))  # noqa: B023
            law[x, y] = math.prod(float(one.channel.rows(np.array([one.place]))[0, one.output]) for one in steps)
    return Rows(law)


def worst(law: np.ndarray, words: int) -> float:
    """The largest ln-ratio between inputs that differ in one word."""
    every = list(itertools.product(range(N), repeat=words))
    pairs = [(a, b) for a, b in itertools.permutations(range(len(every)), 2) if differing(every[a], every[b]) == 1]
    return max(float(np.log(law[a] / law[b]).max()) for a, b in pairs)


def differing(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("form", "words"), [("{}", 1), ("{} and {}, in", 2)])
def test_every_text_of_a_small_vocabulary(form: str, words: int, tmp_path: Path) -> None:
    """All inputs, all outputs, and so all contexts; the text as a whole has words times ε."""
    sanitizer = opened(tmp_path)
    rows = joint(sanitizer, form, words)
    np.testing.assert_allclose(rows.law.sum(axis=1), 1)
    assert worst(rows.law, words) == pytest.approx(sanitizer.epsilon, abs=1e-9)
    assert EPSILON - 0.001 < sanitizer.epsilon <= EPSILON
    assert audit(rows).epsilon <= words * sanitizer.epsilon + 1e-9


def test_a_model_that_reads_raw_words_is_found_out(tmp_path: Path) -> None:
    sound = opened(tmp_path)
    fields = {name: getattr(sound, name) for name in ("name", "served", "partition", "model", "bound")}
    assert worst(joint(Leaking(**fields), "{} and {}", 2).law, 2) > 1.5 * sound.epsilon


def test_draws_follow_the_rows(tmp_path: Path) -> None:
    """χ² over all outputs of a text of two words; by chance it fails once in a million."""
    sanitizer = opened(tmp_path)
    text = f"{SMALL.words[1]} {SMALL.words[3]}"
    law = joint(sanitizer, "{} {}", 2).law[1 * N + 3]
    names = [" ".join(SMALL.words[at] for at in pair) for pair in itertools.product(range(N), repeat=2)]
    seen = dict.fromkeys(names, 0)
    for _ in range(4000):
        seen[sanitizer.sanitize(text).text] += 1
    assert stats.chisquare(list(seen.values()), 4000 * law / law.sum()).pvalue > 1e-6


@pytest.mark.parametrize("shape", [Shape(), Shape(3, 0.0), Shape(200, 1.5), Shape(50, 0.5, 0.0)])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 25.0])
def test_every_row_is_the_ranks_law(shape: Shape, epsilon: float, tmp_path: Path) -> None:
    """So ε is the logarithm of the largest weight over the least, whatever the context."""
    words = letter_words(200)
    sanitizer = open_contextual(Whimsical, words, epsilon, tmp_path, shape=shape)
    weights = sanitizer.served.channel.weights  # type: ignore[attr-defined]
    assert weights.sum() == TOTAL
    assert weights.min() >= 1
    exact = math.log(int(weights.max())) - math.log(int(weights.min()))
    assert sanitizer.epsilon == exact <= epsilon
    for channel in in_contexts(sanitizer):
        law = channel.rows(np.arange(200))
        np.testing.assert_array_equal(np.sort(law, axis=1), np.broadcast_to(np.sort(weights) / TOTAL, law.shape))
        assert audit(channel).epsilon <= exact + 1e-9
        np.testing.assert_array_equal(channel.column(7), law[:, 7])
    assert len(in_contexts(sanitizer)) == len(CONTEXTS)


def test_without_a_context_it_is_the_ranked_cape() -> None:
    """λ_L = 0: closed form, the order by distance; the paper's own ablation."""
    logits = np.linspace(0, 1, N)
    cape = Cape(SMALL, 1.0, logits=logits, logit_power=0.0)
    np.testing.assert_array_equal(cape.rows(np.arange(N)), Cape(SMALL, 1.0).rows(np.arange(N)))
    channel = InContext(SMALL, np.array([TOTAL, 0, 0, 0, 0]), Shape(logit_power=0.0), logits)
    np.testing.assert_array_equal(channel.order(np.arange(N)), SMALL.nearest(np.arange(N), N))
    np.testing.assert_array_equal(
        channel.order(np.arange(N))[:, 0], RankedCape(SMALL, 1.0).rows(np.arange(N)).argmax(1)
    )


def test_what_a_context_expects_comes_out() -> None:
    """Two words equally far: u = √L·e^(-1), so the one with the larger logit is preferred."""
    corners = Vocabulary([f"w{i}" for i in range(3)], np.eye(3))
    for logits, order in (([1, 0.9, 0.2], [0, 1, 2]), ([1, 0.2, 0.9], [0, 2, 1]), ([0.01, 0.2, 0.9], [2, 1, 0])):
        channel = InContext(corners, np.array([TOTAL, 0, 0]), Shape(), np.array(logits))
        utilities = Cape(corners, 1.0, logits=np.array(logits)).utilities(np.array([0]))[0]
        np.testing.assert_allclose(utilities, np.sqrt(logits) * np.exp([0, -1, -1]))
        assert list(channel.order(np.array([0]))[0]) == order


def test_shifted_logits_are_the_same() -> None:
    logits = np.array([-90.0, -80.0, -100.0])
    np.testing.assert_allclose(clipped(logits, 15), [1 / 3, 1, 0])
    np.testing.assert_array_equal(clipped(logits + 100, 15), clipped(logits, 15))


def test_what_is_kept_stays_and_unknown_words_are_drawn(tmp_path: Path) -> None:
    sanitizer = opened(tmp_path, 25.0)
    known = SMALL.words[0]
    done, steps = sanitizer.trace(f"The  {known.title()}, unheard{known}7 (of\t{known})\n")
    assert (done.charged, len(steps)) == (3, 3)
    first, second, third = (SMALL.words[step.output] for step in steps)
    assert re.fullmatch(rf"The  {first.title()}, {second}\d+ \(of\t{third}\)\n", done.text)
    assert [name for name, _ in sanitizer.laws(f"the {known}")] == [known]
    assert not sanitizer.embeds([known])
    with pytest.raises(TextError, match="at most"):
        sanitizer.sanitize("b" * (1 << 20) + "b")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 26.0}, "from 0.001 to 25"),
        ({"keep": ["names"]}, "cannot be kept"),
    ],
)
def test_refusals(options: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        open_contextual(Whimsical, SMALL, **{"epsilon": 1.0, "folder": tmp_path, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"buckets": 1}, {"logit_power": -0.1}, {"distance_power": math.nan}])
def test_shapes_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|are needed"):
        Shape(**wrong)  # type: ignore[arg-type]


def test_a_causal_model_reads_as_it_goes(llama: Path) -> None:
    """Read in parts or at once, logits are those of the whole text by the model itself."""
    model = CausalModel(llama, [" b", "c", "bc"])
    parts, whole = model.open(), model.open()
    for part in ("The ", "rent", " is"):
        parts.read(part)
        parts.logits(spaced=True)
    whole.read("The rent is")
    np.testing.assert_allclose(parts.logits(spaced=False), whole.logits(spaced=False), atol=1e-4)
    pieces = [0, *model.pieces("The rent is")]
    net = LlamaForCausalLM.from_pretrained(llama).eval()
    with torch.inference_mode():
        logits = net(torch.tensor([pieces])).logits[0, -1].double()
        start = net(torch.tensor([[0, *model.pieces("bc")]])).logits[0].double().log_softmax(-1)
    (b,), (c,) = model.pieces("b"), model.pieces("c")
    assert whole.logits(spaced=False)[1] == pytest.approx(float(logits[c]), abs=1e-4)
    assert whole.logits(spaced=False)[2] == pytest.approx(float(logits[b] + start[1, c]), abs=1e-4)
    assert model.open().logits(spaced=False)[1] != pytest.approx(float(logits[c]), abs=1e-2)


def test_a_long_text_is_read_to_its_end(llama: Path) -> None:
    reader = CausalModel(llama, ["b", "c"]).open()
    for _ in range(10):
        reader.read("The rent is due. ")
        assert np.isfinite(reader.logits(spaced=False)).all()
    again = CausalModel(llama, ["b", "c"]).open()
    again.read(10 * "The rent is due. ")
    assert np.isfinite(again.logits(spaced=False)).all()


def test_a_text_with_a_real_causal_model(llama: Path, tmp_path: Path) -> None:
    sanitizer = open_contextual(partial(CausalModel, llama), letter_words(60), 25.0, tmp_path, keep=["stopwords"])
    same = opened(tmp_path)
    assert sanitizer.artifact.digest != same.artifact.digest
    done = sanitizer.sanitize("The bcd, of 1999!")
    assert (done.charged, done.classes) == (3, ("stopword", "word", "word", "stopword", "number", "word"))


@pytest.mark.parametrize(
    "config", ["", "[]", "{}", '{"model_type": []}', '{"model_type": "llama", "vocab_size": "a"}',
               '{"model_type": "llama", "num_attention_heads": 0}']
)  # fmt: skip
def test_a_damaged_folder_is_named(llama: Path, tmp_path: Path, config: str) -> None:
    folder = shutil.copytree(llama, tmp_path / "damaged")
    (folder / "config.json").write_text(config)
    with pytest.raises(ContextModelError, match="damaged does not hold a causal language model"):
        CausalModel(folder, ["b"])


def test_a_folder_without_a_causal_model(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ContextModelError, match="empty"):
        CausalModel(tmp_path / "empty", ["b"])
