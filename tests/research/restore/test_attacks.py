"""The paper's five attacks against the exact one, on a case small enough to enumerate: every secret, every number sent.

Each attack learns from examples of what it sees, as the paper's do, and then guesses types of spans. Its expected score
is computed exactly from its guess for each number that may be sent, so none may exceed the exact attack's.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer

from examples.tiny_model import make_tiny_model
from research.restore.model import SteeredModel
from research.restore.probes import fit_logistic
from research.restore.releases import ReleasedQueries, attack, exact_attack
from sanitization.restore import mechanism
from sanitization.restore.profiles import Made, make_book
from sanitization.vocabulary import FloatArray
from tests.sanitization.restore.made_up import OPTIONS, TYPES

pytestmark = pytest.mark.model

K, SCALE, EXAMPLES = 4, 3.0, 4000
HEADS = [(0, 0), (1, 1)]
REDACTED = "Ann has ___ since Monday."
GUESSES = np.array([guess for guess in product((0, 1), repeat=len(TYPES)) if any(guess)], dtype=float)
"""All sets of types, (63, 6)."""


class Case:
    """People of one redacted text with different spans, a book of profiles, and a model that is steered by them."""

    def __init__(self, folder: Path):
        generator = np.random.default_rng(11)
        centres = np.repeat(generator.standard_normal((3, 64)), 2, axis=0)
        self.vectors = centres + 0.3 * generator.standard_normal((len(TYPES), 64))
        secrets = [(2 * at, 2 * at + 1) for at in range(3)] + [(at,) for at in range(6)] + [(0, 2), (1, 4), (3, 5)]
        self.secrets = np.zeros((len(secrets), len(TYPES)))
        for row, types in enumerate(secrets):
            self.secrets[row, list(types)] = 1
        self.prior = generator.dirichlet(np.full(len(secrets), 2.0))
        self.answers = np.array([types[0] // 2 for types in secrets])
        names = [[TYPES[at] for at in types] for types in secrets]
        self.made: Made = make_book(TYPES, self.vectors @ self.vectors.T, self.secrets, names, K)
        weights = [{TYPES[at]: 1.0 for at in types} for types in secrets]
        self.profiles = np.array([self.made.book.nearest(one) for one in weights])
        self.model = SteeredModel(make_tiny_model(folder), "Patient: {text} Diagnosis:", OPTIONS)

    def joint(self, epsilon: float) -> FloatArray:
        return self.prior[:, None] * mechanism.response(K, epsilon).rows(self.profiles)

    @property
    def meta(self) -> FloatArray:
        """The vector that each number stands for, (k, 64)."""
        return self.made.mixture @ self.vectors

    def states(self, layer: int) -> FloatArray:
        """Hidden states of the steered model at the last token, for each number, (k, hidden)."""
        prompt = self.model._tokens([REDACTED] * K)
        ends = torch.full((K,), len(prompt[0]) - 1)
        vectors = torch.tensor(SCALE * self.meta, dtype=torch.float32).view(K, len(HEADS), 32)
        with torch.inference_mode(), self.model._steered(vectors, HEADS, ends):
            seen = self.model._model(input_ids=torch.tensor(prompt), output_hidden_states=True)
        return seen.hidden_states[layer][:, -1].double().numpy()

    def answered(self) -> FloatArray:
        """The steered model's probabilities of the options for each number, (k, options)."""
        vectors = torch.tensor(SCALE * self.meta, dtype=torch.float32).view(K, len(HEADS), 32)
        with torch.inference_mode():
            return self.model.log_probabilities([REDACTED] * K, vectors, HEADS).double().exp().numpy()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("model"))


def learnt(seen: FloatArray, secrets: np.ndarray, sent: np.ndarray, case: Case) -> FloatArray:
    """Types guessed from what is seen for each number, by logistic regressions on examples, (k, 6)."""
    scaled = (seen - seen.mean(axis=0)) / (seen.std(axis=0) + 1e-9)
    features = torch.tensor(scaled, dtype=torch.float32)
    labels = torch.tensor(case.secrets[secrets], dtype=torch.float32)
    weight, intercept = fit_logistic(features[sent][None], labels)
    scores = (features[None] @ weight + intercept)[0].numpy()
    guessed = (scores > 0).astype(float)
    guessed[np.arange(K), scores.argmax(axis=1)] = 1  # something is always guessed
    return guessed


def embedding_inversion(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    """A linear layer from the meta vector to the spans, by least squares."""
    features = np.column_stack([case.meta, np.ones(K)])
    inverse, *_ = np.linalg.lstsq(features[sent], case.secrets[secrets], rcond=None)
    scores = features @ inverse
    guessed = (scores > 0.5).astype(float)
    guessed[np.arange(K), scores.argmax(axis=1)] = 1
    return guessed


def attribute_inference(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    return learnt(case.meta, secrets, sent, case)


def concatenated_text(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    """The inverted spans beside the words of the redacted text, which are the same for all."""
    return learnt(np.column_stack([embedding_inversion(case, secrets, sent), np.ones((K, 3))]), secrets, sent, case)


def simulated_steering(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    """Another model's states, steered by the meta vector through a layer that fits it."""
    generator = np.random.default_rng(12)
    return learnt(
        np.tanh(generator.standard_normal(24) + case.meta @ generator.standard_normal((64, 24))), secrets, sent, case
    )


def hidden_states(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    return learnt(np.column_stack([case.states(1), case.states(-1)]), secrets, sent, case)


def outputs(case: Case, secrets: np.ndarray, sent: np.ndarray) -> FloatArray:
    return learnt(case.answered(), secrets, sent, case)


ATTACKS: tuple[Callable[[Case, np.ndarray, np.ndarray], FloatArray], ...] = (
    embedding_inversion,
    attribute_inference,
    concatenated_text,
    simulated_steering,
    hidden_states,
    outputs,
)


def score_tables(case: Case) -> dict[str, FloatArray]:
    """The score of each guess for each secret, by name, (63, secrets)."""
    both = GUESSES @ case.secrets.T
    sizes = GUESSES.sum(axis=1)[:, None] + case.secrets.sum(axis=1)
    rouge = RougeScorer(["rougeL"])
    texts = [[" ".join(np.array(TYPES)[row > 0]) for row in rows] for rows in (GUESSES, case.secrets)]
    longest = [[rouge.score(secret, guess)["rougeL"].fmeasure for secret in texts[1]] for guess in texts[0]]
    whole = (both == GUESSES.sum(axis=1)[:, None]) & (2 * both == sizes)
    return {"whole set": whole.astype(float), "F1": 2 * both / sizes, "ROUGE-L": np.array(longest)}


def number(guess: np.ndarray) -> int:
    return int(np.flatnonzero((guess == GUESSES).all(axis=1))[0])


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_no_attack_of_the_paper_exceeds_the_exact_one(case: Case, epsilon: float) -> None:
    joint = case.joint(epsilon)
    generator = np.random.default_rng(13)
    drawn = generator.choice(joint.size, EXAMPLES, p=joint.ravel() / joint.sum())
    secrets, sent = np.divmod(drawn, K)
    guesses = {one.__name__: [number(row) for row in one(case, secrets, sent)] for one in ATTACKS}
    for name, scores in score_tables(case).items():
        best, most = exact_attack(joint, scores)
        assert most == pytest.approx(sum(scores[best[v]] @ joint[:, v] for v in range(K)))
        found = {one: float(sum(scores[guess[v]] @ joint[:, v] for v in range(K))) for one, guess in guesses.items()}
        assert max(found.values()) <= most + 1e-12, (name, found, most)
        if name == "F1":  # the attacks are real: they learn what there is to learn
            assert min(found[one.__name__] for one in ATTACKS if one is not outputs) >= 0.7 * most
        if epsilon == 8.0:
            # The planted bug: an "exact" attack that overlooks the number that was sent is beaten.
            blind = float((scores @ joint.sum(axis=1)).max())
            assert max(found.values()) > blind


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_attack_in_reports_is_the_exact_one_for_answers(case: Case, epsilon: float) -> None:
    """On one redacted text, people known one by one; the prior is that of the answers given the text."""
    law = mechanism.response(K, epsilon).rows(case.profiles)
    likelihood = np.log(law).T
    release = ReleasedQueries("RR", epsilon, case.meta, likelihood)
    even = np.full(len(case.answers), 1 / len(case.answers))  # reports count every known person once
    prior = np.array([even[case.answers == option].sum() for option in range(3)])
    guessed = attack(release, np.log(np.tile(prior, (K, 1))), case.answers)
    joint = np.array([(even[:, None] * law)[case.answers == option].sum(axis=0) for option in range(3)])
    best, most = exact_attack(joint, np.eye(3))
    assert most == pytest.approx(sum(joint[guessed[v], v] for v in range(K)))
    np.testing.assert_array_equal(guessed, best)
