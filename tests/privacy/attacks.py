"""Attacks: all mechanisms, both kinds of sampling, and neighbours that differ in one unit, often of forty exemplars.

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
"""Candidates that draw the centre of all candidates to one side."""


def every(test: Callable[[Answer], bool]) -> Event:
    return lambda answers: all(map(test, answers))


def some(test: Callable[[Answer], bool]) -> Event:
    return lambda answers: any(map(test, answers))


def is_blue(answer: Answer) -> bool:
    return bool(answer["label"] == "blue")


def has_text(text: str) -> Callable[[Answer], bool]:
    return lambda answer: answer["text"] == text


def votes(vote: str, lead: float) -> Sequence[str]:
    """A task with labels, in which the public prior favours blue by ``lead`` votes."""
    return [*LABELS, f"mechanism: {{type: rnm_gaussian, vote: {vote}, prior_weight: {lead}}}"]


def weighed(vote: str, calibration: str = "") -> Sequence[str]:
    """A task with labels, which the posterior decides."""
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
    """Whether the labels' sums together lie over 7·√200 to the west; a canary of norm 1 adds at most √200."""
    sums = np.frombuffer(base64.b64decode(answers[0]["sums"]), "<f8").reshape(MANY_LABELS, 2)
    return bool(-sums[:, 0].sum() / math.sqrt(MANY_LABELS) > 7)


def votes_of_the_canary(answers: Sequence[Answer]) -> bool:
    """Whether all candidates together have over 7·√200 more votes than the other units' 20; a canary may add one."""
    return bool((sum(answers[0]["votes"].values()) - 20) / math.sqrt(MANY_LABELS) > 7)


ALL_OR_SOME_BLUE = {"every label is blue": every(is_blue), "some label is blue": some(is_blue)}

ATTACKS = {
    # The other units fill nine of ten slots, all with red. The canary's exemplars turn one slot.
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
    # If the posterior knew the number of slots that vote, it would show that it knows nothing where no slot does.
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
    # The canary has one exemplar of each label, all in one direction, in which the other units contribute nothing.
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
        events={"some answer is the canary's": some(has_text("at 180"))},
    ),
    "centred embedding mean, blocks, a far and only voice": Attack(
        "blocks",
        texts([*DIRECTIONS, *AGREEING], "type: embedding_mean, radius: 0.005, centred: true"),
        usual=["mute"] * 20,
        canary="at 180",
        events={
            "every answer is the canary's": every(has_text("at 180")),
            "every answer is the centre's": every(has_text("at 0")),
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
    "PTR, units, a secret that no other unit has": Attack(
        "units",
        texts(["nothing"], "type: keyword_ptr, k_min: 1, k_max: 3"),
        usual=["mute"] * 20,
        canary=SECRETS,
        events={"the secret leaves": some(lambda answer: "secret" in answer["text"])},
    ),
    "common sentences, units, a sentence that no other unit has": Attack(
        "units",
        texts(["nothing"], "type: common_sentences, sentences: 3"),
        usual=["mute"] * 20,
        canary="The canary sings here. The canary sings there. The canary sings again.",
        events={"the canary sings": some(lambda answer: "canary" in answer["text"])},
    ),
    # The canary writes otherwise what the other slots write alike.
    "common sentences, blocks, another spelling": Attack(
        "blocks",
        texts(["nothing"], "type: common_sentences, sentences: 1"),
        usual=["The birds all sing."] * 30,
        canary="The Birds All Sing.",
        events={"the canary sings": some(lambda answer: "Birds" in answer["text"])},
    ),
    # The canary's slot insists on one word throughout an answer; the other slots are mute.
    "token ensemble, units, the only voice": Attack(
        "units",
        texts(["nothing"], "type: token_ensemble, tokens: 40, clip: 20, weight: 10"),
        usual=["mute"] * 20,
        canary="b",
        events={"b is the word": lambda answers: sum(f"{one['text']} ".count("b ") for one in answers) > 40},
        size=0,
    ),
    # The word is named, and insisted on. Both releases are of one sample, and are judged together.
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
