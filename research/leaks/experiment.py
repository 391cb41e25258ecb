"""Attacks on a plan's answers, with a made-up person among public rows and without.

**The same stages as in the service** probe, ask the slots, aggregate and add the noise. The knowledge base is a copy
without its rows: public ones fill as many slots, as full, as one of its public size would
(:func:`service.answering.trials.trials.draw_slots`). No ledger and no private exemplar is read.

**Why few calls of the engine are enough.** Units are drawn independently of each other. So a plan keeps its promise
also once the other units are drawn, and known to the attacker. Here they are drawn once for each question. A trial
draws the rest: whether the person is drawn, for which slot, and the noise. Each slot is asked twice for a question,
without the person and with them, whatever the number of trials; and trials are independent, as the intervals need.

Three targets, from what an attacker would see without this service to what they see with it:

- *one slot, no noise*: a slot's own output. The person is in it for certain, as in a prompt that is written once.
- *plan, no noise*: the slots' consensus, the person being drawn with the plan's probability.
- *as signed*: the release.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from accounting.plans.plan import CalibratedPlan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from aggregation.keywords import keywords
from exemplar_store import Exemplar, Nearest, Slot, sampling
from exemplar_store.nearness import shown
from research.leaks.canaries import Canary, canary
from research.leaks.signs import Features, bound, learn
from service.answering.mechanisms.adapter import Aggregator, Answer, Outputs, Public, answer_adapter_of
from service.answering.plans.preview import epsilon_spent
from service.answering.queries import check_query, task_spec
from service.answering.stages import Stages
from service.answering.trials.consensus import consensus
from service.answering.trials.trials import draw_slots, no_sentence, with_embeddings
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.task import Output

ONE_SLOT, NO_NOISE, AS_SIGNED = "one slot, no noise", "plan, no noise", "as signed"
TARGETS = (ONE_SLOT, NO_NOISE, AS_SIGNED)
FEWEST_ROWS = 3
"""Two that the person's rows are made of, and one for the slots."""

Progress = Callable[[str], None]
"""Called with what is being done."""
Look = Callable[["Question", bool], Awaitable[Features]]
"""What an attacker sees in one answer to a question, in the world without the person or with them."""


@dataclass(frozen=True)
class Found:
    """What one attack found out about one target.

    Attributes:
        attack: name of the attack.
        target: one of :data:`TARGETS`.
        trials: number of trials with the person, and of those without, that are counted.
        seen_with: number of trials with the person in which the attacker's sign was seen.
        seen_without: the same without.
        epsilon_at_least: lower bound on ε, which the answers prove.
        epsilon_promised: ε of these answers, by the plan's accountant at its δ; None: nothing is promised.
    """

    attack: str
    target: str
    trials: int
    seen_with: int
    seen_without: int
    epsilon_at_least: float
    epsilon_promised: float | None

    @property
    def broken(self) -> bool:
        """Whether the promise is certainly broken."""
        return self.epsilon_promised is not None and self.epsilon_at_least > self.epsilon_promised


@dataclass(frozen=True)
class Size:
    """The size of a test.

    Attributes:
        trials: number of trials with the person that are counted, and of those without.
        answers: number of answers that an attacker gets in a trial, each to another question.
        rows: number of the person's rows.
        error: probability that any bound of the test is wrong.
    """

    trials: int = 500
    answers: int = 4
    rows: int = 1
    error: float = 0.001


@dataclass(frozen=True)
class Question:
    """A question whose slots were drawn and asked, without the person and with them in each slot.

    Attributes:
        aggregator: mechanism, ready for the question; it makes no sentence of words.
        apart: outputs of the slots that are drawn whether or not the person is there.
        joined: outputs with the person, by the place in ``apart``.
        own: place of the slot that is drawn only if the person's block is, where blocks are drawn; else None.
        probability: chance that the person is drawn.
    """

    aggregator: Aggregator
    apart: Outputs
    joined: Outputs
    own: int | None
    probability: float

    def draw(self, there: bool) -> int | None:
        """Draw the place of the slot that the person, or their block, is in; None: not drawn."""
        if not sampling.poisson_sample(1, self.probability).size:
            return None
        return int(sampling.below(len(self.apart), 1)[0]) if self.own is None and there else self.own

    def outputs(self, place: int | None, there: bool) -> list[Output | None]:
        """The outputs of all slots, the person, or their block, being drawn at this place."""
        outputs = [output for i, output in enumerate(self.apart) if i != self.own or place == i]
        if there and place is not None:
            at = len(outputs) - 1 if self.own is not None else place
            outputs[at] = self.joined[place]
        return outputs

    @cached_property
    def noiseless(self) -> dict[tuple[int | None, bool], Features]:
        """The consensus that was computed already, by arguments of :meth:`outputs`."""
        return {}


class Experiment:
    """A task under attack.

    Args:
        stages: stages that answer in the service.
        calibrated: the plan with its noise.
        name: one of its tasks.
        field: field that exemplars and queries are compared by.
        rows: public rows, at least :data:`FEWEST_ROWS`, with the fields of the exemplars and of the questions.
        response_field: the other field whose embedding the knowledge base stores, None for none.

    Raises:
        ValueError: the task cannot be attacked in this way, or there are too few rows.
    """

    def __init__(
        self,
        stages: Stages,
        calibrated: CalibratedPlan,
        name: str,
        field: str,
        rows: Sequence[Mapping[str, str]],
        response_field: str | None,
    ):
        check(calibrated.plan.tasks[name], name)
        if len(rows) < FEWEST_ROWS:
            raise ValueError(f"a leak test needs at least {FEWEST_ROWS} public rows, not {len(rows)}")
        self._stages = replace(stages, embedder=EmbeddingMemory(stages.embedder))
        self._calibrated, self._name, self._field, self._rows = calibrated, name, field, rows
        self._task, self._noise = calibrated.plan.tasks[name], calibrated.noise[name]
        self._spec = task_spec(
            f"{calibrated.plan.knowledge_base}.{name}",
            self._task,
            f"trials of {calibrated.plan.knowledge_base}",
            field,
            response_field=response_field,
            asker="",
        )

    async def run(self, attacks: Sequence[str], size: Size, progress: Progress = lambda _stage: None) -> list[Found]:
        """Attack each target in each of these ways.

        Args:
            attacks: names of attacks (:data:`research.leaks.canaries.ATTACKS`).
            size: size of the test.
            progress: called with each stage.

        Raises:
            ValueError: the plan has fewer answers, or no slot gives an output.
            service.engines.errors.EngineUnavailableError: the engine is down.
        """
        if size.answers > self._task.answers:
            raise ValueError(f"the plan has {self._task.answers} answers for {self._name}, not {size.answers}")
        plan = self._calibrated.plan
        delta, error = plan.budget.delta, size.error / (2 * len(attacks) * len(TARGETS))
        promised = epsilon_spent(self._calibrated.model_dump_json(), {self._name: size.answers})
        found = []
        for attack in attacks:
            made_up = self._canary(attack, size)
            progress(f"{attack}: asking the slots")
            questions = [await self._ask(made_up, query) for query in made_up.questions]
            for target, look in ((ONE_SLOT, _one_slot), (NO_NOISE, _no_noise), (AS_SIGNED, _as_signed)):
                progress(f"{attack}: {target}")
                worlds = [
                    [await _trial(questions, look, there) for _ in range(2 * size.trials)] for there in (False, True)
                ]
                (learnt0, counted0), (learnt1, counted1) = (
                    (world[: size.trials], world[size.trials :]) for world in worlds
                )
                sign = learn(learnt0, learnt1, delta, error)
                without, with_canary = sign.seen(counted0), sign.seen(counted1)
                proved = bound(without, with_canary, size.trials, delta, error)
                claim = promised if target == AS_SIGNED else None
                found.append(Found(attack, target, size.trials, with_canary, without, proved, claim))
        return found

    def _canary(self, attack: str, size: Size) -> Canary:
        usual, other, *_ = self._rows
        return canary(attack, self._task, self._field, usual, other, rows=size.rows, questions=size.answers)

    async def _ask(self, made_up: Canary, fields: Mapping[str, str]) -> Question:
        """Draw the slots of a question, and ask them without the person and with them."""
        task, spec, query = self._task, self._spec, check_query(self._task, dict(fields))
        ready = await self._stages.probe(task, self._noise, spec, query)
        engine = await self._stages.engine.describe()
        near = await self._stages.embed(spec, query, ready.zero_shot) if task.order == "nearest" else None
        embed = self._stages.embedder.embed if engine.reads_embeddings or near is not None else None
        embedded = [spec.input_field, spec.answer_field] if spec.responses_embedded else [spec.input_field]
        shown_rows = [{name: row[name] for name in task.exemplar_fields} for row in self._rows[2:]]
        others = await with_embeddings(shown_rows, embedded, embed)
        person = await with_embeddings(made_up.rows, embedded, embed)
        probability = self._noise.sampling_probability
        slots = draw_slots(task, probability, self._calibrated.public_size, others, near)
        own = None
        if task.sampling == "blocks":  # the last is the person's own block, which is drawn or not with or without them
            own = max(0, len(slots) - 1)
            slots = slots or [()]
        apart = await ready.ask(slots)
        joined = await ready.ask([_joined(task, slot, person, near) for slot in slots])
        if all(output is None for output in joined):
            raise ValueError("no slot gives an output: does the engine answer, and does the question fit the task?")
        public = Public(query, ready.zero_shot, self._stages.embedder, no_sentence)
        aggregator = cast(Aggregator, await answer_adapter_of(task, self._noise).prepare(public))
        return Question(aggregator, apart, joined, own, probability)


def check(task: ClassifyTask | GenerateTask, name: str) -> None:
    """Check that a task can be attacked in this way.

    Raises:
        ValueError: it cannot; the message gives the reason.
    """
    if task.once:
        raise ValueError(f"{name} is released once, from all exemplars: a leak test attacks answers that slots give")
    if isinstance(task, GenerateTask) and task.mechanism.written_together:
        raise ValueError(f"{name}: slots write {task.mechanism.type} answers together, which a leak test cannot repeat")
    if task.topics is not None:
        raise ValueError(f"{name} has topics: test the task without them, whose answers draw from everyone")


async def _trial(questions: Sequence[Question], look: Look, there: bool) -> Features:
    """What an attacker sees in the answers to all questions."""
    seen = [await look(question, there) for question in questions]
    return {f"{number} {name}": value for number, one in enumerate(seen) for name, value in one.items()}


async def _one_slot(question: Question, there: bool) -> Features:
    place = int(sampling.below(len(question.apart), 1)[0])
    return _of_output((question.joined if there else question.apart)[place])


async def _no_noise(question: Question, there: bool) -> Features:
    place = question.draw(there)
    key = (place, there and place is not None)
    if key not in question.noiseless:
        agreed = await consensus(question.aggregator, question.outputs(*key))
        votes = agreed.support if agreed.measure == "votes" else {}
        question.noiseless[key] = features({**agreed.answer, "votes": votes})
    return question.noiseless[key]


async def _as_signed(question: Question, there: bool) -> Features:
    place = question.draw(there)
    return features(await question.aggregator.release(question.outputs(place, there)))


def features(answer: Answer) -> Features:
    """All that an answer shows, as numbers: votes, or the label; words, and the text as a whole."""
    if votes := cast(Mapping[str, float], answer.get("votes")):
        return {f"votes {label}": float(value) for label, value in votes.items()}
    if "label" in answer:
        return {f"label {answer['label']}": 1.0}
    text = str(answer.get("text", ""))
    words = {*cast(Sequence[str], answer.get("keywords", ())), *keywords(text)}
    return {f"text {text}": 1.0, **{f"word {word}": 1.0 for word in words}}


def _of_output(output: Output | None) -> Features:
    if output is None:
        return {"abstains": 1.0}
    if isinstance(output, np.ndarray):
        return {f"votes {number}": float(value) for number, value in enumerate(output)}
    return features({"text": output if isinstance(output, str) else output.text})


def _joined(task: ClassifyTask | GenerateTask, slot: Slot, person: Sequence[Exemplar], near: np.ndarray | None) -> Slot:
    """A slot that the person was drawn for, too: it keeps as many exemplars as ever, at random."""
    every = (*slot, *person)
    (kept,) = sampling.deal(np.zeros(len(every), np.int64), sampling.words(len(every)), 1, task.slot_cap)
    joined = tuple(every[number] for number in kept)
    return joined if near is None else shown(joined, Nearest(near, task.shots))
