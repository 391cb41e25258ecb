"""What is attacked: all mechanisms, both samplings, and neighbours that differ in one unit with forty exemplars.

Each attack is aimed at a way in which one unit could do more than change one slot's contribution.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.privacy.wired import LABELS, TEXT, Answer, Attack, Event

RED, BLUE = "1 0", "0 1"
SECRETS = " ".join(f"secret{number}" for number in range(300))
DIRECTIONS = [f"at {angle}" for angle in range(0, 360, 45)]
AGREEING = [f"at 0 in other words {number}" for number in range(4)]
"""They draw the candidates' centre to one side."""


def every(test: Callable[[Answer], bool]) -> Event:
    return lambda answers: all(map(test, answers))


def some(test: Callable[[Answer], bool]) -> Event:
    return lambda answers: any(map(test, answers))


def is_blue(answer: Answer) -> bool:
    return bool(answer["label"] == "blue")


def says(text: str) -> Callable[[Answer], bool]:
    return lambda answer: answer["text"] == text


def votes(vote: str, lead: float) -> Sequence[str]:
    """Labels; the public prior leads by so many votes for blue."""
    return [*LABELS, f"mechanism: {{type: rnm_gaussian, vote: {vote}, prior_weight: {lead}}}"]


def weighed(vote: str, calibration: str = "") -> Sequence[str]:
    """Labels, decided by their posterior."""
    return [*LABELS, f"mechanism: {{type: rnm_gaussian, vote: {vote}, calibration: {{{calibration}}}}}"]


def texts(public: Sequence[str], mechanism: str) -> Sequence[str]:
    return [*TEXT, f"public_answers: [{', '.join(public)}]", f"mechanism: {{{mechanism}}}"]


MANY_LABELS = 200
OF_MANY = [
    "kind: classify",
    "label_field: says",
    f"labels: [{', '.join(f'label{number}' for number in range(MANY_LABELS))}]",
]


def points_to_the_canary(answers: Sequence[Answer]) -> bool:
    """Whether the labels' sums together lie further west than a canary of norm 1 can bring them, by seven."""
    sums = np.frombuffer(base64.b64decode(answers[0]["sums"]), "<f8").reshape(MANY_LABELS, 2)
    return bool(-sums[:, 0].sum() / math.sqrt(MANY_LABELS) > 7)


def votes_of_the_canary(answers: Sequence[Answer]) -> bool:
    """Whether the candidates have more votes together than the other units and a canary's one, by seven deviations."""
    return bool((sum(answers[0]["votes"].values()) - 20) / math.sqrt(MANY_LABELS) > 7)


ALL_OR_SOME_BLUE = {"every label is blue": every(is_blue), "some label is blue": some(is_blue)}

ATTACKS = {
    # Nine slots of ten are somebody's, all of them red. One unit's exemplars turn one of them.
    "hard votes, units, many exemplars": Attack(
        "units", votes("hard", 10), usual=[RED] * 160, canary=BLUE, events=ALL_OR_SOME_BLUE, exemplars=60
    ),
    "hard votes, units, a slot that breaks the engine": Attack(
        "units", votes("hard", 25), usual=[RED] * 160, canary="fail", events=ALL_OR_SOME_BLUE
    ),
    # Without the canary 56 of 110 slots abstain, with it 55.
    "hard votes, blocks, as many abstain as answer": Attack(
        "blocks", votes("hard", 27), usual=[RED] * 54, canary=RED, events=ALL_OR_SOME_BLUE, ensemble=110
    ),
    # The canary's embedding, forty times over, lies opposite the others' mean.
    "hard votes, blocks, compared by embeddings": Attack(
        "blocks",
        votes("hard", 0),
        usual=["compare"] * 53,
        usual_text=lambda number: f"at {60 if number % 2 else -60} usual {number}",
        canary="mute",
        events=ALL_OR_SOME_BLUE,
        reads_embeddings=True,
    ),
    "soft votes, blocks, more than a vote": Attack(
        "blocks", votes("soft", 0), usual=[RED] * 45, canary="0 1000", events=ALL_OR_SOME_BLUE, size=60
    ),
    # Of whom nobody votes, nothing is known, and the posterior would say so if it were told how many slots do.
    "posterior, blocks, the only voice": Attack(
        "blocks",
        weighed("soft", "prior: 0, lead: 1, decisiveness: 1"),
        usual=["mute"] * 20,
        canary=BLUE,
        events={"some answer is undecided": some(lambda answer: answer["score"] == 0.5)},
    ),
    "posterior, units, many exemplars": Attack(
        "units",
        weighed("hard", "prior: 0"),
        usual=[RED] * 80 + [BLUE] * 80,
        canary=BLUE,
        events={"blue is favoured": lambda answers: sum(one["scores"]["blue"] for one in answers) > 1},
    ),
    # One exemplar of each label, all embedded alike, where the others have nothing.
    "prototypes, an exemplar of each label": Attack(
        "units",
        [*OF_MANY, "mechanism: {type: prototypes}"],
        usual=["label0"] * 20,
        canary="label{number}",
        events={"the sums point to the canary": points_to_the_canary},
        exemplars=MANY_LABELS,
        once=True,
    ),
    "synthetic exemplars, an exemplar of each label": Attack(
        "units",
        [
            *OF_MANY,
            "mechanism:",
            "  type: synthetic_exemplars",
            "  per_label: 1",
            "  candidates:",
            *(f"  - {{text: candidate, says: label{number}}}" for number in range(MANY_LABELS)),
        ],
        usual=["label0"] * 20,
        canary="label{number}",
        events={"the candidates have the canary's votes": votes_of_the_canary},
        exemplars=MANY_LABELS,
        once=True,
    ),
    "embedding mean, units, the only voice": Attack(
        "units",
        texts(["at 0", "at 180"], "type: embedding_mean"),
        usual=["mute"] * 20,
        canary="at 180",
        events={"some answer is the canary's": some(says("at 180"))},
    ),
    "centred embedding mean, blocks, a far and only voice": Attack(
        "blocks",
        texts([*DIRECTIONS, *AGREEING], "type: embedding_mean, radius: 0.005, centred: true"),
        usual=["mute"] * 20,
        canary="at 180",
        events={
            "every answer is the canary's": every(says("at 180")),
            "every answer is the centre's": every(says("at 0")),
        },
    ),
    "joint EM, units, secret words": Attack(
        "units",
        texts(["apple pear", "plum cherry"], "type: keyword_joint_em, k: 2"),
        usual=["apple"] * 40,
        canary=SECRETS,
        events={"a secret leaves": some(lambda answer: any(word.startswith("secret") for word in answer["keywords"]))},
    ),
    "joint EM, blocks, the only voice": Attack(
        "blocks",
        texts([" ".join(f"word{number}" for number in range(100))], "type: keyword_joint_em, k: 1"),
        usual=["mute"] * 20,
        canary="word50",
        events={"every word is the canary's": every(lambda answer: answer["keywords"] == ["word50"])},
    ),
    # One more slot names "zeta" than "alpha"; the canary evens that out.
    "PTR, blocks, two words of which one leads": Attack(
        "blocks",
        texts(["nothing"], "type: keyword_ptr, k_min: 2, k_max: 2, choice_share: 0.05, delta_share: 0.9"),
        usual=["zeta"] + ["alpha zeta"] * 78,
        canary="alpha",
        ensemble=80,
        events={"alpha is first": some(lambda answer: answer["keywords"][:1] == ["alpha"])},
    ),
    "PTR, units, a secret that nobody else says": Attack(
        "units",
        texts(["nothing"], "type: keyword_ptr, k_min: 1, k_max: 3"),
        usual=["mute"] * 20,
        canary=SECRETS,
        events={"the secret leaves": some(lambda answer: "secret" in answer["text"])},
    ),
    # Each insists on one word in an answer of many; nobody else says anything.
    "token ensemble, units, the only voice": Attack(
        "units",
        texts(["nothing"], "type: token_ensemble, tokens: 40, clip: 20, weight: 10"),
        usual=["mute"] * 20,
        canary="b",
        events={"b is the word": lambda answers: sum(f"{one['text']} ".count("b ") for one in answers) > 40},
        size=0,
    ),
    # Named and insisted on: both releases are of one sample, and are looked at together.
    "token ensemble after words, units, the only voice": Attack(
        "units",
        texts(
            ["nothing"],
            "type: token_ensemble, tokens: 40, clip: 20, weight: 10, after_share: 0.5, "
            "after: {type: keyword_ptr, k_min: 1, k_max: 1}",
        ),
        usual=["mute"] * 20,
        canary="b",
        events={
            "b is named or the word": lambda answers: (
                sum(20 * ("b" in one["keywords"]) + f"{one['text']} ".count("b ") for one in answers) > 39
            ),
        },
        size=0,
    ),
    "token ensemble, units, a slot that ends every answer": Attack(
        "units",
        texts(["nothing"], "type: token_ensemble, tokens: 40, clip: 20, weight: 10"),
        usual=["a"] * 160,
        canary="end",
        events={"an answer is short": some(lambda answer: len(answer["text"].split()) < 10)},
    ),
    "token ensemble, blocks, a slot that fails": Attack(
        "blocks",
        texts(["nothing"], "type: token_ensemble, tokens: 40, clip: 20, weight: 10"),
        usual=["b"] * 53,
        canary="mute",
        events={"the slots are heard": lambda answers: sum(f"{one['text']} ".count("b ") for one in answers) > 70},
    ),
}
