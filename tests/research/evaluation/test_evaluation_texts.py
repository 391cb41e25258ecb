"""``dpicl eval`` on free text: end to end with the real embedder and engine, and the figures on answers made up."""

import asyncio
import csv
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from accounting.plans.mechanisms import EmbeddingMeanMechanism, KeywordJointEmMechanism, KeywordPtrMechanism
from accounting.plans.plan import Plan, TaskNoise, load_plan
from accounting.plans.tasks import GenerateTask
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease, SymmetricProfile
from research.evaluation.dataset import Asked, Dataset
from research.evaluation.tables import Grid
from research.evaluation.texts import AnsweredTexts, Answers, TextEvaluator, measure
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.task import ZeroShot
from tests.research.evaluation.conftest import FOOD, TOOLS
from tests.service.conftest import TEXT_PLAN, Embedding, MajorityEngine
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

BILLS = """
knowledge_base: bills
budget: {epsilon: 8, delta: 1.0e-4}
tasks:
  bought:
    kind: generate
    response_field: item
    document_field: bill
    prompt: {exemplar: "{bill}\\n{question}\\n{item}", query: "{bill}\\n{question}"}
    shots: 4
    ensemble: 10
    answers: 3
    candidates: 10
    mechanism: {type: keyword_ptr, k_min: 1, k_max: 3}
"""

EMBEDDING = EmbeddingMeanMechanism(type="embedding_mean")
RANKED = KeywordJointEmMechanism(type="keyword_joint_em", k=2)
TESTED = KeywordPtrMechanism(type="keyword_ptr", k_min=1, k_max=3)
LITTLE_NOISE = Gaussian(0.01), BoundedRange(99.0), ProposeTestRelease(99.0, 0.01, 1e-6)
MUCH_NOISE = ProposeTestRelease(1.0, 50.0, 1e-9)


@pytest.fixture
def bills(tmp_path: Path) -> Path:
    """Bills that always name what was bought below the shop; a bill is a unit."""
    bought = itertools.product(FOOD + TOOLS, (("Anna", 2), ("Boris", 3), ("Chen", 5)))
    rows = [
        {
            "unit_id": f"b{number}",
            "bill": f"Shop of {place}\nItem: {word} {weight} kg\nThank you\nCome again",
            "question": "What was bought?",
            "item": f"{word} {weight} kg",
        }
        for number, (word, (place, weight)) in enumerate(bought)
    ]
    for name, chosen in (("train", rows[:50]), ("test", rows[50:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    (tmp_path / "plan.yaml").write_text(BILLS)
    return tmp_path


def test_the_table_the_file_and_the_picture(dpicl: Shell, bills: Path) -> None:
    table, picture = bills / "table.csv", bills / "picture.png"
    plan = ["--plan", bills / "plan.yaml", "--embedded-field", "question"]
    common = ["eval", bills, *plan, "--epsilon", 8, "--draws", 3]
    results = json.loads(dpicl.ok(*common, "--csv", table, "--png", picture, "--json"))
    mechanisms = (
        "keyword_ptr, k = 1 to 3",
        "embedding_mean, radius 1",
        "keyword_joint_em, k = 5",
        "common_sentences, 2 of a slot",
    )
    assert [(r["method"], r["mechanism"]) for r in results] == [
        ("zero-shot", ""),
        ("one slot of 4", ""),
        *((method, mechanism) for mechanism in mechanisms for method in ("aggregate, no noise", "private")),
    ]
    assert results[1]["rouge1"] >= 60  # slots have learnt which line is the answer
    assert all(r["epsilon"] == 8 and r["answers"] == 3 and r["noise"] for r in results if r["method"] == "private")
    with table.open() as stream:
        for row, result in zip(csv.DictReader(stream), results, strict=True):
            assert float(row["bleu"]) == pytest.approx(result["bleu"], abs=0.01)
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = dpicl.ok(*common, "--mechanism", "{type: embedding_mean, centred: true, radius: 0.5}", "--answers", 3)
    assert "0.5" in shown
    assert "keyword" not in shown


def test_what_public_exemplars_alone_give_has_a_row(dpicl: Shell, bills: Path) -> None:
    """A bill that names what was bought is enough to learn which line it is; zero-shot does not know."""
    public = {"bill": "Shop of Dora\nItem: pear 7 kg\nThank you\nCome again", "question": "What was bought?"}
    written = f"    public_exemplars: [{json.dumps({**public, 'item': 'pear 7 kg'})}]\n    candidates: 10"
    (bills / "plan.yaml").write_text(BILLS.replace("    candidates: 10", written))
    options = ["--embedded-field", "question", "--epsilon", 8, "--draws", 2, "--mechanism", "{type: embedding_mean}"]
    results = json.loads(dpicl.ok("eval", bills, "--plan", bills / "plan.yaml", *options, "--json"))
    names = ["zero-shot", "public exemplars only", "one slot of 4", "aggregate, no noise", "private"]
    assert [result["method"] for result in results] == names
    assert results[1]["rouge1"] >= results[0]["rouge1"] + 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mechanism", "{type: embedding_sum}"], "tasks.bought.mechanism.type: "),
        (["--mechanism", "{type: keyword_ptr, k_min: 3, k_max: 2}"], "mechanism: k_min: "),
        (["--mechanism", "{type: keyword_joint_em, k: 20}"], "0 of 10 queries"),
        (["--mechanism", "{"], "--mechanism: '{' is not YAML"),
        (["--embedded-field", "price"], "have no field 'price'; they have bill, question"),
    ],
)
def test_bad_options_are_explained(dpicl: Shell, bills: Path, options: list[str], message: str) -> None:
    assert message in dpicl.fails("eval", bills, "--plan", bills / "plan.yaml", *options)


def test_an_engine_without_a_text_to_choose_is_not_asked(dpicl: Shell, bills: Path) -> None:
    plan = bills / "plan.yaml"
    plan.write_text(plan.read_text().replace("    document_field: bill\n", ""))
    assert "public_answers" in dpicl.fails("eval", bills, "--plan", plan)


def test_a_row_without_an_answer_is_explained(dpicl: Shell, bills: Path) -> None:
    (bills / "test.jsonl").write_text('{"bill": "a", "question": "b"}\n')
    assert "test.jsonl: row 1, field 'item': is missing" in dpicl.fails("eval", bills, "--plan", bills / "plan.yaml")


def asked(outputs: Sequence[str | None], *, answer: str = "a red kite", text: str = "what flies") -> Asked:
    return Asked({"text": text}, answer, ZeroShot(texts=("a blue boat", "a red kite")), tuple(outputs))


def embed(texts: Sequence[str]) -> np.ndarray:
    """One direction for kites, another for everything else."""
    return np.array([[1.0, 0.0] if "kite" in text else [0.0, 1.0] for text in texts], np.float32)


@pytest.fixture
def plan() -> Plan:
    return load_plan(TEXT_PLAN.format(epsilon=4, answers=5, mechanism="type: embedding_mean"))


def made(plan: Plan, rows: Sequence[Asked]) -> AnsweredTexts:
    return AnsweredTexts(
        rows, Dataset(Path(), plan, "story", "text").specification, MajorityEngine(), EmbeddingMemory(Embedding(embed))
    )


def aggregate(
    plan: Plan, texts: AnsweredTexts, mechanism: object, noise: SymmetricProfile, draws: int
) -> list[Answers]:
    task = plan.tasks["story"]
    assert isinstance(task, GenerateTask)
    changed = task.model_copy(update={"mechanism": mechanism})
    return asyncio.run(texts.aggregate(changed, TaskNoise(sampling_probability=0.5, mechanism=noise), draws))


KITES = asked(["a red kite"] * 12 + ["a kite"] * 3 + ["a boat"] * 5 + [None, "  "])


@pytest.mark.parametrize("draws", [0, 4])
@pytest.mark.parametrize(
    ("mechanism", "noise", "text"),
    [
        (EMBEDDING, LITTLE_NOISE[0], "a red kite"),
        (RANKED, LITTLE_NOISE[1], "about kite and red"),
        (TESTED, LITTLE_NOISE[2], "about kite and red"),
    ],
)
def test_without_noise_and_with_next_to_none(
    plan: Plan, mechanism, noise: SymmetricProfile, text: str, draws: int
) -> None:
    (found,) = aggregate(plan, made(plan, [KITES]), mechanism, noise, draws)
    assert found.texts == [text] * max(draws, 1)


def test_fallbacks_are_counted(plan: Plan) -> None:
    (found,) = aggregate(plan, made(plan, [KITES]), TESTED, MUCH_NOISE, 4)
    assert (found.texts, found.fallbacks) == (["a blue boat"] * 4, 4)
    assert measure([found, found], 3, "private", TESTED).fallbacks == 100


def test_rows_the_service_would_refuse_are_left_out(plan: Plan) -> None:
    """Query and candidates have the words blue, boat, red, kite and what is in the query: four or more than four."""
    rows = [KITES, asked(["a red kite"], text="the"), Asked({"text": "x"}, "y", ZeroShot(), ("z",))]
    many = KeywordJointEmMechanism(type="keyword_joint_em", k=5)
    texts = made(plan, rows)
    assert len(aggregate(plan, texts, many, LITTLE_NOISE[1], 1)) == 1
    assert len(aggregate(plan, texts, RANKED, LITTLE_NOISE[1], 1)) == 2
    assert len(texts.without_private()["zero-shot"]) == 2


def test_means_and_their_errors_are_right() -> None:
    """A right answer, one that is right every other time, and a wrong one."""
    answers = [Answers("red kite", ["red kite"]), Answers("boat", ["boat", "x"]), Answers("soup", ["x"])]
    row = measure(answers, 4, "private")
    assert (row.queries, row.refused) == (3, 1)
    assert row.rouge1 == pytest.approx(50)
    assert row.rouge1_error == pytest.approx(100 * np.std([1, 0.5, 0], ddof=1) / np.sqrt(3))
    with pytest.raises(ValueError, match="1 of 9"):
        measure(answers[:1], 9, "private")


def test_bleu_is_that_of_one_draw_however_many_there_are() -> None:
    """A corpus of two short texts without a triple is smoothed, to the same extent however often they are drawn."""
    once = [Answers("red kite", ["red kite"]), Answers("a boat", ["a ship"])]
    twice = [Answers(one.right, [*one.texts, *one.texts]) for one in once]
    assert measure(twice, 2, "private").bleu == pytest.approx(measure(once, 2, "private").bleu)


def test_every_budget_is_calibrated_by_itself(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}\n" * 120)
    mechanisms = ["{type: embedding_mean}", "{type: keyword_ptr, k_min: 1, k_max: 3}"]
    evaluator = TextEvaluator(Dataset(tmp_path, plan, "story", "text"), mechanisms)
    rows = asyncio.run(evaluator.scores(made(plan, [KITES, KITES]), Grid([2.0, 8.0], [5], 2)))
    private = [row for row in rows if row.method == "private"]
    names = [(row.mechanism.split(",")[0], row.epsilon) for row in private]
    assert names == [*itertools.product(("embedding_mean", "keyword_ptr"), (2, 8))]
    assert len({row.noise for row in private}) == 4
