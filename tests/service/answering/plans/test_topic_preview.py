"""Topics in a preview: what each costs alone, and which public texts are on it."""

from collections.abc import Sequence

import numpy as np
import pytest

from accounting.plans.plan import load_plan
from accounting.privacy.accountants import get_accountant
from accounting.privacy.events import Event, Sampling
from service.answering.plans.calibrating import calibrate
from service.answering.plans.centres import centres
from service.answering.plans.preview import preview
from service.answering.plans.topic_preview import with_topics

TASK = """
knowledge_base: toys
budget: {{epsilon: 2, delta: 1.0e-5}}
tasks:
  colour:
    kind: classify
    labels: [red, blue]
    prompt: {{exemplar: "{{text}} {{label}}", query: "{{text}}"}}
    shots: 2
    ensemble: 10
    answers: 20
    topics: {topics}
    {more}
    mechanism: {{type: rnm_gaussian}}
"""
TEXTS = [f"my {thing} number {n}" for n in range(4) for thing in ("kite", "boat")]


def embed(texts: Sequence[str]) -> np.ndarray:
    """One vector for all texts on kites, another for all other texts."""
    return np.array([[0.9, 0.1] if "kite" in text else [0.1, 0.9] for text in texts], np.float32)


def test_a_larger_topic_costs_less_and_the_dearest_what_is_paid() -> None:
    topics = "{by: field, field: text, names: [kite, boat, car], sizes: {kite: 100, boat: 1000}}"
    calibrated = calibrate(load_plan(TASK.format(topics=topics, more="")), 3000)
    seen = with_topics(preview(calibrated), calibrated, embed).tasks["colour"].topics
    assert seen is not None
    noise = calibrated.noise["colour"].mechanism
    for topic, size in (("kite", 100), ("boat", 1000), ("car", 1000)):
        event = Event(noise, Sampling("units", 20 / size), 20)
        assert seen[topic].epsilon == get_accountant("pld").bounds([event], 1e-5).upper
        assert (seen[topic].public_size, seen[topic].texts) == (size, [])
    assert seen["boat"].epsilon < seen["kite"].epsilon <= 2  # type: ignore[operator]


@pytest.mark.parametrize(
    ("topics", "kites", "boats"),
    [
        ("{by: similarity, names: {Flying: a kite, Sailing: a boat}}", "Flying", "Sailing"),
        (f"{{by: public_texts, number: 2, texts: {TEXTS}}}", None, None),
    ],
)
def test_public_texts_are_shown_on_their_topics(topics: str, kites: str | None, boats: str | None) -> None:
    more = f"public_texts: {TEXTS}" if kites else ""
    calibrated = calibrate(load_plan(TASK.format(topics=topics, more=more)), 3000)
    assert preview(calibrated).tasks["colour"].topics["1" if kites is None else kites].texts == []  # type: ignore[index]
    seen = with_topics(preview(calibrated), calibrated, embed).tasks["colour"].topics
    assert seen is not None
    shown = {topic: its.texts for topic, its in seen.items()}
    if kites is None:
        assert sorted(map(tuple, shown.values())) == [tuple(TEXTS[1:6:2]), tuple(TEXTS[0:6:2])]
    else:
        assert shown == {kites: TEXTS[0:6:2], boats: TEXTS[1:6:2]}


def test_of_thousands_of_public_texts_few_are_embedded_for_the_preview() -> None:
    many, asked = [f"my {thing} number {n}" for n in range(150) for thing in ("kite", "boat")], list[int]()

    def counting(texts: Sequence[str]) -> np.ndarray:
        asked.append(len(texts))
        return embed(texts)

    topics = f"{{by: public_texts, number: 2, texts: {many}}}"
    calibrated = calibrate(load_plan(TASK.format(topics=topics, more="")), 3000)
    prepared = calibrated.model_copy(update={"centres": centres(calibrated.plan.tasks, None, embed)})
    seen = with_topics(preview(prepared), prepared, counting).tasks["colour"].topics
    assert seen is not None
    assert asked == [100]
    assert all(len(its.texts) == 3 for its in seen.values())
