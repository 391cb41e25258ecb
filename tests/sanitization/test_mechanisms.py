"""Every mechanism as it is served: as private as announced, drawn as audited."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from sanitization import mechanisms
from sanitization.audit import RefusedChannelError, audit
from sanitization.mechanisms import CORRECTED, RESPONSES, MechanismName, Served, best_nominal, serve
from sanitization.mixing import least_mixing
from sanitization.published.santext import SanText
from sanitization.table import TableError
from sanitization.vocabulary import Vocabulary
from tests.laws import ALPHA, p_value
from tests.sanitization.made_up import vocabulary

WORDS = vocabulary(120, 24)
EVERY = np.arange(120)
EVERY_MECHANISM = pytest.mark.parametrize("name", [*CORRECTED, *RESPONSES])


@pytest.mark.parametrize("count", [2, 3, *(pytest.param(count, marks=pytest.mark.slow) for count in (50, 120))])
@EVERY_MECHANISM
def test_as_private_as_announced(name: str, count: int, tmp_path: Path) -> None:
    """All of the ε that was asked for is used, except at the ends of the range."""
    for epsilon in (0.001, 1.0, 6.0, 12.0, 25.0):
        served = serve(name, vocabulary(count, 24), epsilon, tmp_path)
        assert served.audit.epsilon <= epsilon
        assert served.audit.complete
        assert served.audit == audit(served.channel)
        if epsilon in (1.0, 6.0):
            assert served.audit.epsilon == pytest.approx(epsilon, abs=2e-5)


@EVERY_MECHANISM
def test_the_order_of_words_reveals_nothing(name: str, tmp_path: Path) -> None:
    words = vocabulary(60, 24)
    shuffled = np.random.default_rng(3).permutation(60)
    other = Vocabulary([words.words[at] for at in shuffled], words.vectors[shuffled], words.shares[shuffled])

    def law(known: Vocabulary) -> np.ndarray:
        channel = serve(name, known, 4.0, tmp_path).channel
        outputs = np.argsort(np.array(channel.outputs))
        return channel.rows(np.array([known.index[word] for word in words.words]))[:, outputs]

    np.testing.assert_allclose(law(other), law(words), rtol=1e-4)


@EVERY_MECHANISM
def test_drawn_as_audited(name: str, tmp_path: Path) -> None:
    served = serve(name, WORDS, 4.0, tmp_path)
    for x in (0, 77):
        law = served.channel.rows(np.array([x]))[0]
        counts = np.bincount(served.channel.draw(np.full(50_000, x)), minlength=len(law))
        assert p_value(counts, 50_000, law) > ALPHA


def test_a_correction_that_does_not_hold_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are mixed for twice the ε that is announced."""
    monkeypatch.setattr(mechanisms, "MARGIN", -4.0)
    with pytest.raises(RefusedChannelError, match="4"):
        serve("custext", WORDS, 4.0, tmp_path)


def drawn(served: Served, word: str, **embed: Any) -> np.ndarray:
    made = served.replace([word] * 40_000, **embed)
    return np.array([made.count(output) for output in served.channel.outputs])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["custext", "medoid_rr"])
def test_any_string(name: str, tmp_path: Path) -> None:
    """A known word has its row, an unknown one that of the nearest word, or the mean of all."""
    served = serve(name, WORDS, 3.0, tmp_path)
    law = served.channel.rows(EVERY)
    assert p_value(drawn(served, "w17"), 40_000, law[17]) > ALPHA
    assert p_value(drawn(served, "w17"), 40_000, law[18]) < ALPHA
    for string in ("", "Zürich 🏔", "\ud800\x00", "w17 ", "1e9"):
        assert p_value(drawn(served, string), 40_000, law.mean(axis=0)) > ALPHA
    near = WORDS.vectors[17] + 0.01
    assert p_value(drawn(served, "x", embed=lambda words: np.tile(near, (len(words), 1))), 40_000, law[17]) > ALPHA


def test_words_are_drawn_independently_and_in_their_order(tmp_path: Path) -> None:
    served = serve("nearest_rr", WORDS, 20.0, tmp_path)
    text = [f"w{i}" for i in (5, 5, 99, 3)]
    assert served.replace(text) == text, "at ε = 20 a word changes once in four million draws"
    assert served.replace([]) == []
    flat = serve("medoid_rr", WORDS, 0.5, tmp_path)
    pairs = [tuple(flat.replace(["w1", "w2"])) for _ in range(4000)]
    both = np.outer(*(flat.channel.rows(np.array([x]))[0] for x in (1, 2))).ravel()
    found = np.array([pairs.count((a, b)) for a in flat.channel.outputs for b in flat.channel.outputs])
    assert p_value(found, 4000, both) > ALPHA


@pytest.mark.parametrize("name", ["santext", "medoid_rr"])
@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 25.1, float("nan")])
def test_epsilon_out_of_range(name: str, epsilon: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ε .* 0\.001 to 25"):
        serve(name, WORDS, epsilon, tmp_path)


def test_neighbours_that_need_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "LARGEST_BYTES", 8 * 120)
    with pytest.raises(TableError, match="neighbours"):
        serve("nearest_rr", WORDS, 0.5, tmp_path)


def test_the_names_are_those_of_the_mechanisms() -> None:
    assert sorted(get_args(MechanismName)) == sorted([*RESPONSES, *CORRECTED])


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"'rot13': .*santext"):
        serve("rot13", WORDS, 4.0, tmp_path)


def test_the_nominal_epsilon_is_the_cheapest() -> None:
    """Its cost is compared with that of going through all words, not some."""
    epsilon = 3.0

    def cost(nominal: float) -> float:
        law = SanText(WORDS, nominal).rows(EVERY)
        beta, base = least_mixing(law.max(axis=0), law.min(axis=0), epsilon)
        squares = WORDS.distances(EVERY) ** 2
        return float(WORDS.shares @ (((1 - beta) * law + beta * base) * squares).sum(axis=1))

    chosen = cost(best_nominal(SanText, WORDS, epsilon))
    assert chosen <= min(cost(nominal) for nominal in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)) * 1.01
