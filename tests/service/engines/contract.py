"""The promises of every engine, as tests that the tests of each engine inherit."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from exemplar_store import Exemplar, Slot
from service.engines.errors import EngineUnavailableError, NotKeptError
from service.engines.passing_on import PassesOn
from service.engines.prompts import showing
from service.engines.protocol import Engine
from service.engines.task import Embedded, Output, Prompt, TaskSpec, ZeroShot
from tests.service.engines.isolated import assert_isolated

LABELS = TaskSpec(
    "support.queue@1",
    ("Sports", "Business", "Gardening"),
    Prompt("Which desk?", "Text: {text}\nDesk: {label}", "Text: {text}\nDesk:"),
    ensemble=100,
    knowledge_base="support",
)
TEXTS = replace(
    LABELS,
    name="support.reply@1",
    labels=(),
    prompt=Prompt("Answer.", "Text: {text}\nReply: {label}", "Text: {text}\nReply:"),
    kind="generate",
    candidates=3,
    public_answers=("Wait a day.", "Ask the desk."),
)
PUBLIC = ({"text": "Sow peas in March.", "label": "Gardening"}, {"text": "The cup was drawn.", "label": "Sports"})
SHOWN = replace(LABELS, public_exemplars=PUBLIC, prompt=showing(LABELS.prompt, PUBLIC))
QUERY = {"text": "The striker scored twice in the final."}
TICKETS = [
    ("The goalkeeper saved a late penalty.", "Sports"),
    ("Shares of the bank fell by a tenth.", "Business"),
    ("Water the tomatoes in the evening.", "Gardening"),
    ("She won the marathon in record time.", "Sports"),
    ("The merger was blocked by the regulator.", "Business"),
    ("Prune the roses before spring.", "Gardening"),
]
POOL = [
    Exemplar({"text": text, "label": label}, vector)
    for (text, label), vector in zip(TICKETS, np.eye(len(TICKETS), dtype=np.float32), strict=True)
]


@dataclass(frozen=True)
class Case:
    """A question to an engine, and exemplars that slots are made of, each of which it can use."""

    task: TaskSpec
    query: Mapping[str, str] = field(default_factory=lambda: QUERY)
    pool: Sequence[Exemplar] = tuple(POOL)


@dataclass(frozen=True)
class Running:
    """An engine with its event loop."""

    engine: Engine
    run: Callable[[Coroutine[Any, Any, Any]], Any]


def compared(output: Output | None) -> bytes | str | tuple[str, bytes] | None:
    """An output in a form that is compared bit by bit."""
    if isinstance(output, Embedded):
        return output.text, output.embedding.tobytes()
    return output.tobytes() if isinstance(output, np.ndarray) else output


class EngineContract:
    """What the pipeline expects of an engine. A subclass has the fixture ``engine``, or ``running``.

    Attributes:
        slots: number of slots whose isolation is tested.
        changed: number of them that are changed.
    """

    slots = 40
    changed = 6

    @pytest.fixture
    def running(self, engine: Engine) -> Iterator[Running]:
        with asyncio.Runner() as runner:
            yield Running(engine, runner.run)

    @pytest.fixture(params=[LABELS, TEXTS, SHOWN], ids=["labels", "texts", "public exemplars"])
    def case(self, request: pytest.FixtureRequest) -> Case:
        return Case(request.param)

    @pytest.fixture
    def zero_shot(self, running: Running, case: Case) -> ZeroShot:
        """The public answer, as Ray carries it from one process to another."""
        public = running.run(running.engine.zero_shot(case.task, case.query))
        return pickle.loads(pickle.dumps(public))  # noqa: S301

    @pytest.fixture
    def ask(self, running: Running, case: Case, zero_shot: ZeroShot) -> Callable[[Sequence[Slot]], list[Any]]:
        def ask(slots: Sequence[Slot]) -> list[Any]:
            said = running.run(running.engine.contributions(case.task, case.query, slots, zero_shot))
            assert len(said) == len(slots)
            return [compared(output) for output in said]

        return ask

    def test_its_description_names_what_it_can(self, running: Running) -> None:
        info = running.run(running.engine.describe())
        assert running.run(running.engine.describe()) == info
        assert all([info.name, info.isolation, info.notice])
        assert info.writes_together == (info.writing_slots > 0)
        can_write, can_keep = (hasattr(running.engine, name) for name in ("write", "keep"))
        if isinstance(running.engine, PassesOn):  # it has every method, and describes what it asks
            assert can_write >= info.writes_together
            assert can_keep >= info.keeps_blocks
        else:
            assert (can_write, can_keep) == (info.writes_together, info.keeps_blocks)
        assert hasattr(running.engine, "room") >= (info.writes_together or info.keeps_blocks)

    def test_what_is_public_has_the_form_of_the_task(self, running: Running, case: Case, zero_shot: ZeroShot) -> None:
        """The answer without exemplars, and where the task is one of texts, sentences of released words."""
        if case.task.kind == "classify":
            assert zero_shot.probabilities.dtype == np.float64
            assert zero_shot.probabilities.shape == (len(case.task.labels),)
            assert zero_shot.probabilities.min() >= 0
            assert zero_shot.probabilities.sum() == pytest.approx(1)
            assert zero_shot.texts == ()
        else:
            assert zero_shot.probabilities is None
            assert 1 <= len(zero_shot.texts) == len(set(zero_shot.texts)) <= case.task.candidates
            assert all(text.strip() for text in zero_shot.texts)
            for words, ordered in ((["desk"], True), (["roses", "unheard-of"], False)):
                sentence = running.run(running.engine.reconstruct(case.task, case.query, words, ordered, zero_shot))
                assert sentence.text == sentence.text.strip() != ""
                assert sentence.method

    def test_its_public_answer_depends_on_the_question_alone(
        self, running: Running, case: Case, zero_shot: ZeroShot, ask: Callable[[Sequence[Slot]], list[Any]]
    ) -> None:
        """What the engine was asked and shown before does not matter."""
        running.run(running.engine.zero_shot(case.task, {name: f"{text} Or not?" for name, text in case.query.items()}))
        ask([tuple(case.pool)])
        again = running.run(running.engine.zero_shot(case.task, case.query))
        assert compared(again.probabilities) == compared(zero_shot.probabilities)
        assert (again.texts, again.tokens, again.embedded) == (zero_shot.texts, zero_shot.tokens, zero_shot.embedded)

    def test_each_slot_has_one_output_of_the_tasks_form_and_an_empty_one_none(
        self, running: Running, case: Case, zero_shot: ZeroShot
    ) -> None:
        slots = [(), tuple(case.pool), (), tuple(case.pool[:1]), tuple(case.pool[1:3])]
        said = running.run(running.engine.contributions(case.task, case.query, slots, zero_shot))
        assert [output is None for output in said] == [not slot for slot in slots]
        for output in filter(lambda output: output is not None, said):
            if case.task.kind == "classify":
                assert output.dtype == np.float64
                assert output.shape == (len(case.task.labels),)
                assert output.min() >= 0
                assert output.sum() == pytest.approx(1)
            elif zero_shot.embedded:
                assert output.text.strip()
                assert output.embedding.dtype == np.float32
                assert np.linalg.norm(output.embedding) == pytest.approx(1, abs=1e-6)
            else:
                assert output.strip()

    @pytest.mark.parametrize("seed", range(2))
    def test_no_slot_changes_the_output_of_another(
        self, case: Case, ask: Callable[[Sequence[Slot]], list[Any]], seed: int
    ) -> None:
        assert_isolated(ask, case.pool, seed, self.slots, self.changed)

    def test_exemplars_that_make_no_sense_cost_their_own_slot_at_most(
        self, case: Case, ask: Callable[[Sequence[Slot]], list[Any]]
    ) -> None:
        """They hold all that a store can hold: the same fields as the others, and embeddings of the same length."""
        good = case.pool[0]
        odd = [
            replace(good, fields={**good.fields, name: value})
            for name in good.fields
            for value in ("", " \n", "\0", "{text}", "{", "word " * 3000)
        ]
        for name in ("embedding", "response_embedding"):
            if (vector := getattr(good, name)) is not None:
                odd += [replace(good, **{name: one}) for one in (-vector, 0 * vector, np.full_like(vector, np.nan))]
        first, last = ask([(good,), tuple(case.pool)])
        with np.errstate(invalid="ignore"):
            said = ask([(good,), *((one,) for one in odd), *((one, good) for one in odd), tuple(odd), tuple(case.pool)])
        assert (said[0], said[-1]) == (first, last)

    def test_it_reads_the_embeddings_that_it_asks_for_and_no_others(
        self, running: Running, case: Case, ask: Callable[[Sequence[Slot]], list[Any]]
    ) -> None:
        bare = [replace(exemplar, embedding=None, response_embedding=None) for exemplar in case.pool]
        without = ask([tuple(bare), tuple(bare[:1])])
        reads: bool = running.run(running.engine.describe()).reads_embeddings
        assert without == ([None, None] if reads else ask([tuple(case.pool), tuple(case.pool[:1])]))

    def test_questions_at_the_same_time_are_answered_as_one_after_the_other(
        self, running: Running, case: Case, zero_shot: ZeroShot, ask: Callable[[Sequence[Slot]], list[Any]]
    ) -> None:
        slots = [[tuple(case.pool[at:])] for at in range(4)]

        async def together() -> list[list[Any]]:
            asked = [running.engine.contributions(case.task, case.query, some, zero_shot) for some in slots]
            await running.engine.health()
            return [list(map(compared, said)) for said in await asyncio.gather(*asked)]

        assert running.run(together()) == list(map(ask, slots))


class DownContract:
    """What the pipeline expects of an engine that cannot answer. A subclass has the fixture ``down``."""

    def test_the_probe_of_an_engine_that_is_down_fails_and_repeats_no_question(self, down: Running) -> None:
        for task in (LABELS, TEXTS):
            with pytest.raises(EngineUnavailableError) as refused:
                down.run(down.engine.zero_shot(task, QUERY))
            assert QUERY["text"] not in str(refused.value)


class KeepingContract:
    """What the pipeline expects of an engine that reads blocks ahead. A subclass has the fixture ``running``."""

    TASK = replace(LABELS, slot_tokens=300)

    @pytest.fixture
    def blocks(self) -> list[Slot]:
        return [tuple(POOL[at : at + 2]) for at in range(0, len(POOL), 2)]

    def outputs(self, running: Running, task: TaskSpec, blocks: Sequence[Slot]) -> list[Any]:
        answers = running.run(running.engine.contributions(task, QUERY, blocks, ZeroShot()))
        return [compared(output) for output in answers]

    def keep(self, running: Running, blocks: Sequence[Slot]) -> TaskSpec:
        return replace(self.TASK, kept=running.run(running.engine.keep(self.TASK, blocks)))

    def test_a_kept_block_has_the_output_that_it_had_before(self, running: Running, blocks: list[Slot]) -> None:
        """It is the same bit by bit, beside others or alone."""
        unkept, kept = self.outputs(running, self.TASK, blocks), self.keep(running, blocks)
        assert None not in unkept
        assert self.outputs(running, kept, blocks) == unkept
        assert [self.outputs(running, kept, [one])[0] for one in blocks] == unkept

    def test_a_block_that_is_not_kept_abstains_alone(self, running: Running, blocks: list[Slot]) -> None:
        kept = self.keep(running, blocks)
        changed = [blocks[0], blocks[1][1:], *blocks[2:], ()]
        assert [output is None for output in self.outputs(running, kept, changed)] == [False, True, False, True]
        kept = self.keep(running, changed)
        assert [output is None for output in self.outputs(running, kept, changed)] == [False, False, False, True]

    def test_a_task_whose_blocks_are_lost_is_refused_before_anything_is_sampled(self, running: Running) -> None:
        lost = replace(self.TASK, kept="another process's")
        with pytest.raises(NotKeptError):
            running.run(running.engine.zero_shot(lost, QUERY))
