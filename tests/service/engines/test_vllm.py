"""The real engine on the CPU, with a tiny model of random weights; `transformers` gives the right results."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from accounting.plans.plan import load_plan
from aggregation.token_ensemble import TokenEnsemble
from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar
from service.answering.latency import GrainTooSmallError
from service.answering.queries import task_spec
from service.engines.configs import VllmConfig
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError
from service.engines.factory import open_engine
from service.engines.lock_step import UnansweredError
from service.engines.prompts import rendered, showing, with_keywords
from service.engines.task import Prompt, TaskSpec, Writing, ZeroShot
from service.engines.vllm.balanced_reference import public_slots
from service.engines.vllm.label_scoring import calibrated, reference
from tests.service.answering.test_measured_grains import padded
from tests.service.conftest import PLAN, TEXT_PLAN, nearly_noiseless
from tests.service.shell import Shell

pytestmark = pytest.mark.vllm

LABELS = ("Ledger", "Wheels", "Keys", "Greenhouse", "Farewell")
PROMPT = Prompt("Which team answers?", "Ticket: {text}\nTeam: {team}", "Ticket: {text}\nTeam:")
CLASSIFY = TaskSpec("support.queue@1", LABELS, PROMPT, "team", knowledge_base="support")
GENERATE = TaskSpec(
    "support.reply@1",
    (),
    Prompt("Answer.", "Ticket: {text}\nReply: {team}", "Ticket: {text}\nReply:"),
    "team",
    kind="generate",
    candidates=4,
    public_answers=("A public answer.",),
    knowledge_base="support",
)
QUERY = {"text": "My parcel never came."}


def exemplar(number: int) -> Exemplar:
    words = random.Random(number).choices(
        ["lamp", "parcel", "invoice", "password", "basil", "courier", "contract"], k=12
    )
    return Exemplar(fields={"text": " ".join(words), "team": LABELS[number % 5]}, embedding=None)


def slot(number: int, size: int = 3) -> tuple[Exemplar, ...]:
    return tuple(exemplar(100 * number + i) for i in range(size))


SLOTS = [slot(number) for number in range(8)]
FULL = (replace(exemplar(1), fields={"text": "parcel " * 200, "team": "Keys"}),)


class Running:
    """An engine, and an event loop that lives as long as it does."""

    def __init__(self, folder: Path, **settings: Any):
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        config = VllmConfig(
            name="vllm", model=str(folder), dtype="float32", enforce_eager=True, kv_cache_gib=1, **settings
        )
        self.engine = open_engine(config, None)  # type: ignore[arg-type]

    def ask(self, task: TaskSpec, slots: list, query: dict[str, str] = QUERY) -> list:
        async def both():
            zero_shot = await self.engine.zero_shot(task, query)
            return await self.engine.contributions(task, query, slots, zero_shot)

        return list(self.run(both()))

    def write(self, task: TaskSpec, slots: list) -> str:
        return self.run(self.engine.write(task, QUERY, slots, ZeroShot()))

    def zero_shot(self, task: TaskSpec, query: dict[str, str] = QUERY) -> ZeroShot:
        return self.run(self.engine.zero_shot(task, query))

    def run(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 120))

    @contextmanager
    def watched(self) -> Iterator[list[tuple[Any, Any]]]:
        """The requests to vLLM while the block runs: each prompt, and its result."""
        asked: list[tuple[Any, Any]] = []
        generate = self.engine._llm.generate

        async def watch(prompt, *args, **options):
            async for result in generate(prompt, *args, **options):
                asked.append((prompt, result))
                yield result

        with mock.patch.object(self.engine._llm, "generate", watch):
            yield asked


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = make_tiny_model(tmp_path_factory.mktemp("model"))
    running = Running(folder, max_model_len=512, max_answer_tokens=12, max_queued_prompts=50)
    yield running
    cores = [c for c in psutil.Process().children(recursive=True) if c.name().startswith(("VLLM::", "EngineCore"))]
    resources = running.engine._llm.engine_core.resources
    running.engine.close()
    assert resources.input_socket.closed
    assert resources.output_socket.closed
    running.loop.close()
    _, alive = psutil.wait_procs(cores, timeout=20)
    assert cores
    assert not alive


def right_scores(folder: Path, text: str, labels: tuple[str, ...]) -> np.ndarray:
    """The first token's probabilities over labels that differ in it."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    first = [tokenizer.encode(label, add_special_tokens=False)[0] for label in labels]
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode(text)])).logits[0, -1].double()
    return torch.softmax(logits[first], 0).numpy()


def test_a_models_class_is_looked_at_in_the_engines_own_process(running, tmp_path, monkeypatch):
    from vllm import ModelRegistry  # not before the engine has set the environment that vLLM reads then

    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))  # what an earlier start of vLLM found out is kept there
    with mock.patch("vllm.model_executor.models.registry._run_in_subprocess", side_effect=AssertionError):
        for architecture in json.loads((running.folder / "config.json").read_text())["architectures"]:
            assert ModelRegistry.models[architecture].inspect_model_cls().is_text_generation_model


@pytest.mark.parametrize("described", ["{", "[]", '{"architectures": ["NoSuchModel"]}'])
def test_a_model_that_cannot_be_looked_at_is_named(running, tmp_path, described):
    shutil.copytree(running.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(described)
    with pytest.raises(EngineUnavailableError, match=f"cannot start with the model {tmp_path}"):
        Running(tmp_path)


def test_labels_are_scored_as_transformers_scores_them(running):
    texts = [
        "Which team answers?\n\n"
        + "".join(f"Ticket: {e.fields['text']}\nTeam: {e.fields['team']}\n\n" for e in some)
        + f"Ticket: {QUERY['text']}\nTeam:"
        for some in ([], *SLOTS[:3])
    ]
    spaced = tuple(f" {label}" for label in LABELS)
    expected = [right_scores(running.folder, text, spaced) for text in texts]
    zero_shot = running.zero_shot(CLASSIFY)
    assert zero_shot.probabilities == pytest.approx(expected[0], abs=1e-4)
    for output, right in zip(running.ask(CLASSIFY, SLOTS[:3]), expected[1:], strict=True):
        assert output == pytest.approx(right, abs=1e-4)
    assert max(np.abs(one - expected[0]).max() for one in expected[1:]) > 0.01  # the model does read exemplars


PUBLIC = ({"text": "The basil wilts.", "team": "Greenhouse"}, {"text": "The lock jams.", "team": "keys"})
SHOWN = replace(
    CLASSIFY,
    public_exemplars=PUBLIC,
    prompt=showing(replace(PROMPT, labels=LABELS, label_field="team"), PUBLIC),
)


def test_public_exemplars_are_shown_to_zero_shot_and_before_a_slots_own(running):
    public = (
        "Which team answers?\n\nTicket: The basil wilts.\nTeam: Greenhouse\n\nTicket: The lock jams.\nTeam: Keys\n\n"
    )
    spaced, own = tuple(f" {label}" for label in LABELS), SLOTS[0]
    shown = "".join(f"Ticket: {e.fields['text']}\nTeam: {e.fields['team']}\n\n" for e in own)
    asked = f"Ticket: {QUERY['text']}\nTeam:"
    expected = [right_scores(running.folder, f"{public}{some}{asked}", spaced) for some in ("", shown)]
    assert running.zero_shot(SHOWN).probabilities == pytest.approx(expected[0], abs=1e-4)
    assert running.ask(SHOWN, [own])[0] == pytest.approx(expected[1], abs=1e-4)
    assert np.abs(running.zero_shot(CLASSIFY).probabilities - expected[0]).max() > 0.01


def test_public_exemplars_that_leave_no_room_for_a_question_are_named(running):
    """A question that is too long is the caller's; one that would fit without them is the admin's."""
    many = tuple({"text": f"lamp {n} " * 12, "team": "Keys"} for n in range(20))
    task = replace(CLASSIFY, public_exemplars=many, prompt=showing(PROMPT, many))
    with pytest.raises(UnanswerableQueryError, match="leave out public_exemplars"):
        running.zero_shot(task)
    with pytest.raises(UnanswerableQueryError, match="ask with a shorter text"):
        running.zero_shot(SHOWN, {"text": "parcel " * 600})


def test_labels_of_many_tokens_that_begin_alike(running):
    labels = ("Ledger", "Ledger team", "Ledger team two", "Quartz")
    task = TaskSpec("support.queue@1", labels, PROMPT, "team", knowledge_base="support")
    tokenizer = AutoTokenizer.from_pretrained(running.folder)
    model = AutoModelForCausalLM.from_pretrained(running.folder)
    ids = tokenizer.encode(f"Which team answers?\n\nTicket: {QUERY['text']}\nTeam:")
    tokens = [tokenizer.encode(f" {label}", add_special_tokens=False) for label in labels]
    ends = [tokenizer.eos_token_id, tokenizer.encode("\n")[0]]

    def next_probabilities(prefix):
        with torch.no_grad():
            return torch.softmax(model(torch.tensor([ids + prefix])).logits[0, -1].double(), 0).numpy()

    def probability(label):
        result = 1.0
        for depth in range(len(label) + 1):
            p = next_probabilities(label[:depth])
            options = {
                other[depth] if len(other) > depth else None for other in tokens if other[:depth] == label[:depth]
            }
            weight = {option: p[ends].sum() if option is None else p[option] for option in options}
            result *= weight[label[depth] if depth < len(label) else None] / sum(weight.values())
        return result

    assert max(map(len, tokens)) > 2
    scored = running.zero_shot(task).probabilities
    assert scored == pytest.approx([probability(label) for label in tokens], abs=1e-4)


CALIBRATION = tuple({"text": text} for text in ("N/A", "", "A pot is broken.", "Where do I pay?"))


def test_each_slot_is_calibrated_by_its_own_scores_on_public_queries(running):
    """A slot's outputs for public queries are its own, so only those of zero-shot are pooled, which are public."""
    plain = [running.ask(CLASSIFY, SLOTS[:3], query) for query in (QUERY, *CALIBRATION)]
    zero = [running.zero_shot(CLASSIFY, query).probabilities for query in (QUERY, *CALIBRATION)]
    task = replace(CLASSIFY, calibration=CALIBRATION)
    public = calibrated(zero[0], reference(zero[1:]))
    zero_shot = running.zero_shot(task)
    assert zero_shot.probabilities == pytest.approx(public, abs=1e-6)
    for number, output in enumerate(running.ask(task, SLOTS[:3])):
        scores = [one[number] for one in plain]
        assert output == pytest.approx(calibrated(scores[0], reference(scores[1:]), public), abs=1e-6)
    alone = [running.ask(task, [one])[0] for one in SLOTS[:3]]
    assert all(np.array_equal(*pair) for pair in zip(alone, running.ask(task, SLOTS[:3]), strict=True))


BALANCED = replace(CLASSIFY, calibration=CALIBRATION, own_reference=0.0, shots=3)


@pytest.mark.parametrize("own", [0.0, 0.25])
def test_slots_are_calibrated_by_public_exemplars(running, own):
    """What is common to all slots comes from public texts alone, and is asked for once; a slot asks one prompt."""
    task = replace(BALANCED, own_reference=own)
    beside = [running.ask(CLASSIFY, [one.slot], one.query)[0] for one in public_slots(task)]
    zero_shot = running.zero_shot(task)
    assert zero_shot.context.scores == pytest.approx(reference(beside), abs=1e-6)
    shown = [one.label for one in public_slots(task)]
    assert zero_shot.repeats == np.mean([int(one.argmax()) == label for one, label in zip(beside, shown, strict=True)])
    with running.watched() as prompts:
        outputs = running.ask(task, SLOTS[:3])
    assert len(prompts) == 1 + 3 * (1 + len(CALIBRATION) * (own > 0))
    scores = [running.ask(CLASSIFY, SLOTS[:3], query) for query in (QUERY, *CALIBRATION)]
    for number, output in enumerate(outputs):
        favoured = reference([reference(beside), reference([said[number] for said in scores[1:]])], [1 - own, own])
        expected = calibrated(scores[0][number], favoured, zero_shot.probabilities)
        assert output == pytest.approx(expected, abs=1e-6)
        assert np.array_equal(output, running.ask(task, [SLOTS[number]])[0])


def test_slots_need_the_reference_that_zero_shot_made(running):
    with pytest.raises(TypeError, match="reference"):
        running.run(running.engine.contributions(BALANCED, QUERY, SLOTS[:2], ZeroShot()))
    quoting = replace(BALANCED, quotes=True)
    assert running.zero_shot(quoting).context is None


def test_a_question_that_gives_up_ends_its_prompts_and_leaves_their_scores_to_the_next(running):
    task, engine = replace(BALANCED, shots=2), running.engine

    def scored() -> int:
        return sum(map(len, engine._beside_public.values()))

    async def ask():
        gives_up = asyncio.create_task(engine.zero_shot(task, QUERY))
        while not scored():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        gives_up.cancel()
        await asyncio.wait([gives_up])
        before = scored()
        await asyncio.sleep(0.3)  # far longer than a prompt takes
        assert scored() == before
        return await engine.zero_shot(task, QUERY)

    with running.watched() as prompts:
        zero_shot = running.run(ask())
    assert not engine._beside_public
    beside = [running.ask(CLASSIFY, [one.slot], one.query)[0] for one in public_slots(task)]
    assert zero_shot.context.scores == pytest.approx(reference(beside), abs=1e-6)
    tokenizer = AutoTokenizer.from_pretrained(running.folder)
    ended = Counter(tokenizer.decode(result.prompt_token_ids) for _, result in prompts if result.finished)
    assert sum(count for text, count in ended.items() if text.count("Ticket:") > 1) == len(beside)  # each ended once


def test_texts_are_continued_as_transformers_continues_them(running):
    tokenizer = AutoTokenizer.from_pretrained(running.folder)
    model = AutoModelForCausalLM.from_pretrained(running.folder)
    text = "Answer.\n\n" + "".join(f"Ticket: {e.fields['text']}\nReply: {e.fields['team']}\n\n" for e in SLOTS[0])
    ids = torch.tensor([tokenizer.encode(f"{text}Ticket: {QUERY['text']}\nReply:")])
    written = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    expected = tokenizer.decode(written, skip_special_tokens=True).split("\n\n")[0].strip()
    assert running.ask(GENERATE, SLOTS[:1]) == [expected]


def test_zero_shot_texts_are_candidates(running):
    texts = running.zero_shot(GENERATE).texts
    assert len(texts) == len(set(texts)) == 4
    assert texts[1] == "A public answer."
    assert running.zero_shot(GENERATE).texts == texts  # seeds are the prompt's


def test_a_sentence_is_made_of_released_words(running):
    zero_shot = running.zero_shot(GENERATE)
    sentence = running.run(running.engine.reconstruct(GENERATE, QUERY, ["refund", "courier"], True, zero_shot))
    assert sentence.text
    assert "language model" in sentence.method


def test_no_slot_changes_another(running):
    for task in (CLASSIFY, BALANCED, GENERATE, SHOWN):
        before = running.ask(task, SLOTS)
        changed = running.ask(task, [*SLOTS[:3], slot(50, 7), *SLOTS[4:]])
        removed = running.ask(task, [*SLOTS[:3], *SLOTS[4:]])
        alone = [running.ask(task, [one])[0] for one in SLOTS]
        for others in (changed[:3] + changed[4:], removed, alone[:3] + alone[4:]):
            assert all(np.array_equal(a, b) for a, b in zip(before[:3] + before[4:], others, strict=True))
        assert not np.array_equal(changed[3], before[3])


WRITTEN = replace(
    GENERATE, candidates=1, writing=Writing(TokenEnsemble(0.2, 2.0, 1.0), tokens=6, longest=8, top_k=20, gate=1.0)
)


def wanted(at):
    """The tokens asked for at a place of an answer: some are new at each place, and their number varies."""
    return list(range(40 + at, 140 + at + 7 * (at % 3)))


async def opinions_of_fresh_prompts(engine, slots, said):
    """The slots' opinions after every beginning of an answer, from a separate request for each."""
    from service.engines.vllm.engine import _next_token  # once the engine has chosen vLLM's environment

    prompts, steps = [own[0] for own, _ in await engine._asked(GENERATE, QUERY, slots)], []
    for at in range(len(said) + 1):
        parameters = _next_token(tuple(wanted(at)))
        outputs = await asyncio.gather(*(engine._ask(GENERATE, [*own, *said[:at]], parameters) for own in prompts))
        steps.append([[output.logprobs[0][token].logprob for token in wanted(at)] for output in outputs])
    return steps


async def opinions(engine, slots, said, missing=0):
    """The opinions of slots' sessions after every beginning of an answer, all at once, as if more slots were asked."""
    prompts = [prompts for prompts, _ in await engine._asked(GENERATE, QUERY, slots)]
    sessions = [engine._session(GENERATE, own[0], group=-1, most=128) for own in prompts if own]
    asked = len(sessions) + missing
    steps = [
        await asyncio.gather(*(session.opinion(said[max(at - 1, 0) : at], wanted(at), asked) for session in sessions))
        for at in range(len(said) + 1)
    ]
    await asyncio.gather(*(session.close() for session in sessions))
    return steps


def test_sessions_agree_with_fresh_prompts_whatever_other_slots_write(running):
    """No bit differs, cold or cached, with slots changed, removed or alone, at every token."""
    said = [70, 71, 99, 140, 52]
    before = running.run(opinions(running.engine, SLOTS, said))
    assert before == running.run(opinions_of_fresh_prompts(running.engine, SLOTS, said))
    assert before == running.run(opinions(running.engine, SLOTS, said))
    changed = running.run(opinions(running.engine, [*SLOTS[:3], slot(50, 7), *SLOTS[4:]], said))
    removed = running.run(opinions(running.engine, [*SLOTS[:3], *SLOTS[4:]], said))
    alone = [running.run(opinions(running.engine, [each], said)) for each in SLOTS]
    for at, step in enumerate(before):
        others = step[:3] + step[4:]
        assert changed[at][:3] + changed[at][4:] == others
        assert removed[at] == others
        assert [each[at][0] for each in alone] == step
        assert changed[at][3] != step[3]


def test_an_answer_goes_on_behind_empty_lines_that_it_begins_with(running, monkeypatch):
    """It goes on once, and not beyond its greatest length: no slot takes longer than those that were measured."""
    asked = []

    async def blank_at_first(task, prompt, parameters):
        asked.append((prompt, parameters.max_tokens))
        return SimpleNamespace(text=" \n\n" if len(asked) < 2 else " Ships. ", token_ids=[70, 71], finish_reason="stop")

    monkeypatch.setattr(running.engine, "_ask", blank_at_first)
    (prompt,) = running.engine._tokens_of(GENERATE).prompts(["Where is it?"])
    assert running.run(running.engine._write(GENERATE, prompt, 0.0)) == ("Ships.", False)
    (_, most), second = asked
    assert second == ([*prompt, 70, 71], most - 2)


def test_a_slot_that_never_comes_is_not_waited_for(running):
    """Slots are computed in one step, and soon without one that failed before it was asked."""
    said = [70, 71]
    assert running.run(opinions(running.engine, SLOTS, said, missing=1)) == running.run(
        opinions(running.engine, SLOTS, said)
    )


def test_slots_write_an_answer_together(running, monkeypatch):
    """Each slot is asked for its opinion on every token."""
    from service.engines.vllm.sessions import SlotSession  # once the engine has chosen vLLM's environment

    opinion, asked, said = SlotSession.opinion, [], []

    async def noted(session, read, tokens, voices):
        asked.append(len(tokens))
        said.append(await opinion(session, read, tokens, voices))
        return said[-1]

    monkeypatch.setattr(SlotSession, "opinion", noted)
    zero_shot = running.zero_shot(WRITTEN)
    assert len(zero_shot.texts) == 1
    texts = {running.run(running.engine.write(WRITTEN, QUERY, [*SLOTS, ()], zero_shot)) for _ in range(4)}
    assert len(texts) > 1
    assert all(isinstance(text, str) for text in texts)
    assert len(asked) == len(said)  # none failed
    assert running.engine._admission.in_flight == 0


def test_writing_is_measured_with_the_largest_slots_alone(running):
    """Slots that do not fill their room do not stand for the largest."""
    asked = replace(WRITTEN, measuring=True, slot_tokens=64)
    with pytest.raises(UnansweredError):
        running.write(asked, [slot(1, 1), ()])
    running.write(asked, [FULL, FULL])


def ruled(**rules):
    return replace(WRITTEN, writing=replace(WRITTEN.writing, longest=80, **rules))


FIELDS = {"team": {"enum": [*LABELS]}, "why": {"type": "string", "maxLength": 6}, "urgent": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": FIELDS, "required": [*FIELDS], "additionalProperties": False}


def test_answers_keep_to_a_grammar(running):
    texts = {running.write(ruled(regex="(yes|no), [0-9]{2}"), SLOTS[:3]) for _ in range(8)}
    assert all(re.fullmatch("(yes|no), [0-9]{2}", text) for text in texts)
    assert len(texts) > 1
    for _ in range(3):
        said = json.loads(running.write(ruled(json_schema=json.dumps(SCHEMA)), SLOTS[:3]))
        assert list(said) == SCHEMA["required"]
        assert said["team"] in LABELS
        assert len(said["why"]) <= 6
    assert running.engine._admission.in_flight == 0


@pytest.mark.parametrize(
    ("rules", "read", "cut", "left"),
    [
        ({"regex": ".+"}, b"\xed", b"\xa0", b"\x9f"),
        ({"json_schema": '{"type": "string", "maxLength": 6}'}, b'"\xed', b"\xbf", b"\x80"),
        ({"json_schema": '{"type": "string"}'}, b'"\\uD', b"8", b"7"),
        ({"json_schema": '{"type": "string"}'}, b'"\\u00ed\\ud', b"F", b"0"),
    ],
)
def test_no_answer_has_half_of_a_pair(running, rules, read, cut, left):
    """xgrammar would take it, and the answer would not be a text of the length that a schema allows."""
    task = ruled(**rules)
    grammar = running.engine._grammars().open(task.writing, running.engine._tokens_of(task).text_ends()[0])
    vocabulary = running.engine._grammars()._unbroken["json_schema" in rules]._vocabulary
    for byte in read:
        grammar.read(vocabulary.index(bytes([byte])))
    ours, theirs = grammar.allowed(), grammar._mask.numpy().view(np.uint8)[0]
    bits = np.unpackbits(theirs, bitorder="little")
    assert bits[vocabulary.index(cut)] == bits[vocabulary.index(left)] == 1
    assert not ours[vocabulary.index(cut)]
    assert ours[vocabulary.index(left)]


def test_released_words_are_named_in_every_prompt(running, monkeypatch):
    tokenizer, opened, prompts = AutoTokenizer.from_pretrained(running.folder), running.engine._session, []

    def noted(task, prompt, **same):
        prompts.append(tokenizer.decode(prompt))
        return opened(task, prompt, **same)

    monkeypatch.setattr(running.engine, "_session", noted)
    prompt, query = with_keywords(WRITTEN.prompt, QUERY, ("courier", "lamp"), ordered=False)
    running.run(running.engine.write(replace(WRITTEN, prompt=prompt), query, SLOTS[:3], ZeroShot()))
    assert len(prompts) == 4
    assert all("Word suggestions: courier, lamp" in prompt for prompt in prompts)
    assert [prompt.count("Ticket:") for prompt in prompts] == [1, 4, 4, 4]


def test_answers_contain_no_banned_text(running):
    assert any("a" in running.write(WRITTEN, SLOTS[:3]).casefold() for _ in range(6))
    asked = ruled(banned=("a", "er"))
    texts = [running.write(asked, SLOTS[:3]) for _ in range(6)]
    assert not any(asked.writing.forbids(text) for text in texts)
    assert any(texts)


@pytest.mark.parametrize(
    "rules", [{"regex": "(?=a)b"}, {"json_schema": '{"type": "array", "uniqueItems": true}'}], ids=["regex", "schema"]
)
def test_a_grammar_that_cannot_be_kept_to_is_refused_by_the_probe(running, rules):
    with pytest.raises(UnanswerableQueryError, match="grammar"):
        running.zero_shot(ruled(**rules))


def test_measuring_a_grammar_does_all_its_work(running, monkeypatch):
    from service.engines.vllm.engine import _Public  # once the engine has chosen vLLM's environment

    likeliest, asked_for = _Public.likeliest, []

    async def noted(public, read, count, beside=()):
        asked_for.append((count, len(beside)))
        return await likeliest(public, read, count, beside)

    monkeypatch.setattr(_Public, "likeliest", noted)
    asked = replace(ruled(regex="(yes|no), [0-9]{2}"), measuring=True, slot_tokens=64)
    running.write(asked, [FULL, FULL])
    assert len(asked_for) == 80
    assert {count for count, beside in asked_for if beside} == {128}


def test_a_slot_that_fails_does_not_end_the_answer(running, monkeypatch):
    from service.engines.vllm.sessions import SlotSession  # once the engine has chosen vLLM's environment

    opinion, failed = SlotSession.opinion, []

    async def fails_once(session, read, tokens, voices):
        if read and not failed:
            failed.append(session)
            raise RuntimeError("this slot cannot be read")
        assert session not in failed
        return await opinion(session, read, tokens, voices)

    async def cannot_be_closed(session):
        await close(session)
        if session in failed:
            raise RuntimeError("it is still giving up")

    close = SlotSession.close
    monkeypatch.setattr(SlotSession, "opinion", fails_once)
    monkeypatch.setattr(SlotSession, "close", cannot_be_closed)
    for _ in range(3):
        running.write(WRITTEN, SLOTS)
    assert failed


def test_a_question_that_repeats_an_exemplar_does_not_find_it_cached(running):
    """Its prompt is the beginning of that slot's, so under the same salt it would be answered sooner."""
    guess, task = exemplar(4711), replace(CLASSIFY, knowledge_base="guessed at")

    def cached(work) -> dict[str, int]:
        with running.watched() as asked:
            running.run(work)
        return {prompt["cache_salt"]: result.num_cached_tokens for prompt, result in asked}

    (private,) = cached(running.engine.contributions(task, QUERY, [(guess,)], ZeroShot()))
    again = cached(running.engine.contributions(task, QUERY, [(guess,)], ZeroShot()))
    assert again[private] > 0  # so the cache is on
    public = cached(running.engine.zero_shot(task, dict(guess.fields)))
    assert private not in public
    assert set(public.values()) == {0}


def salts(running, work) -> tuple[set[str], set[str]]:
    """The salts of prompts without exemplars, and of prompts with some."""
    tokenizer, found = AutoTokenizer.from_pretrained(running.folder), (set(), set())
    with running.watched() as asked, opened(running) as sessions:
        running.run(work)
    prompts = [(prompt["prompt_token_ids"], prompt["cache_salt"]) for prompt, _ in asked if isinstance(prompt, dict)]
    for tokens, salt in (*prompts, *sessions):
        found[tokenizer.decode(tokens).count("Ticket:") > 1].add(salt)
    return found


@contextmanager
def opened(running) -> Iterator[list[tuple[list[int], str]]]:
    """Beginnings and salts of the sessions that are opened while the block runs."""
    from service.engines.vllm import engine  # once the engine has chosen vLLM's environment

    sessions, session = [], engine.SlotSession

    def noted(llm, prompt, salt, *rest, **options):
        sessions.append((list(prompt), salt))
        return session(llm, prompt, salt, *rest, **options)

    with mock.patch.object(engine, "SlotSession", noted):
        yield sessions


def test_no_prompt_without_exemplars_shares_a_cache_with_slots(running, monkeypatch):
    """This holds for every question of every caller: else the time of a prompt would reveal what was drawn."""
    from service.engines.vllm.sessions import SlotSession

    likeliest = SlotSession.likeliest

    async def few(session, read, count):
        """Return one token, as when vLLM computes the wanted tokens of others instead."""
        return dict(list((await likeliest(session, read, count)).items())[:1])

    engine, zero_shot = running.engine, running.zero_shot(GENERATE)
    calibrating = replace(CLASSIFY, calibration=CALIBRATION)
    public, private = salts(running, engine.write(WRITTEN, QUERY, SLOTS[:3], ZeroShot()))
    for other in (replace(WRITTEN, prompt=WRITTEN.prompt), ruled(regex="(yes|no), [0-9]{2}")):
        with monkeypatch.context() as patch:
            patch.setattr(SlotSession, "likeliest", few)
            assert salts(running, engine.write(other, QUERY, SLOTS[:3], ZeroShot())) == (public, private)
    assert len(public) == len(private) == 1
    assert public.isdisjoint(private)
    for task in (CLASSIFY, calibrating, GENERATE, WRITTEN):
        assert salts(running, engine.zero_shot(task, {"text": "Where is my lamp?"})) <= (public, set())
    assert salts(running, engine.reconstruct(GENERATE, QUERY, ["lamp"], False, zero_shot)) == (public, set())
    for task in (CLASSIFY, calibrating, GENERATE):
        assert salts(running, engine.contributions(task, QUERY, SLOTS[:3], ZeroShot())) == (set(), private)
    task = replace(BALANCED, shots=4)  # its reference shows public texts as exemplars, and those alone
    assert set.union(*salts(running, engine.zero_shot(task, QUERY))) == public
    context = running.zero_shot(task).context
    assert salts(running, engine.contributions(task, QUERY, SLOTS[:3], ZeroShot(context=context))) == (set(), private)
    elsewhere = replace(WRITTEN, knowledge_base="another")
    others = salts(running, engine.write(elsewhere, QUERY, SLOTS[:3], ZeroShot()))
    assert not set.union(*others) & (public | private)


def test_exemplars_that_do_not_fit_a_slot_are_left_out_by_it_alone(running):
    six = tuple(exemplar(i) for i in range(6))
    endless = Exemplar(fields={"text": "lamp " * 3000, "team": "Keys"}, embedding=None)
    lengths = running.engine._tokens["generate"].lengths(rendered(PROMPT, six))
    for kept in (0, 1, 3, 6):
        task = replace(CLASSIFY, slot_tokens=sum(lengths[6 - kept :]) + 1)
        shown, *others = running.engine._prompts(task, QUERY, [(endless, *six), six[5:], ()])
        assert [shown] == running.engine._prompts(CLASSIFY, QUERY, [six[6 - kept :]])  # the nearest is the last
        assert others == [*(running.engine._prompts(CLASSIFY, QUERY, [six[5:]]) if kept else [[]]), []]


PLANS = {
    "colour": PLAN.replace("shots: 2", "shots: 2\n    slot_tokens: 150"),
    "story": TEXT_PLAN.format(epsilon=90, answers=2, mechanism="type: keyword_ptr, k_min: 2, k_max: 3").replace(
        "shots: 3", "shots: 3\n    slot_tokens: 150"
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_largest_slots_are_asked_for_true_and_none_can_ask_for_more(running, tmp_path, name):
    """The planted bug measures exemplars that are too long to be shown, so nothing is asked."""
    calibrated = nearly_noiseless(load_plan(PLANS[name]))
    services = padded(tmp_path, calibrated, running.engine)
    task, signed = calibrated.plan.tasks[name], services.records.ledger.budgets.task(f"toys.{name}")
    with running.watched() as asked:
        measured = running.run(services.grains.of(signed))
    assert measured.problem == ""
    runs = [result for _, result in asked if len(result.prompt_token_ids) == measured.tokens + task.slot_tokens]
    assert len(runs) >= 2 * task.ensemble
    assert len(runs) % task.ensemble == 0
    written = {len(result.outputs[0].token_ids) for _, result in asked}
    assert written == {1 if name == "colour" else 12}  # all that an answer may have

    spec = task_spec("toys", task, "toys", "text", response_field=None, asker="k")
    query = {"text": "aaaa aaab aaac"}
    zero_shot = running.zero_shot(spec, query)
    assert measured.times(zero_shot.tokens) == 1.0
    generator, most = random.Random(1), zero_shot.tokens + spec.slot_tokens

    def exemplar() -> Exemplar:
        text = generator.choices("aé 中\n#lamp", k=generator.choice((1, 9, 30, 90, 3000)))
        return Exemplar({"text": "".join(text), "label": "red"}, None)

    with running.watched() as private:
        for _ in range(5):
            slots = [tuple(exemplar() for _ in range(task.slot_cap)) for _ in range(20)]
            running.run(running.engine.contributions(spec, query, slots, zero_shot))
    assert most - 20 < max(len(result.prompt_token_ids) for _, result in private) <= most

    dropped = mock.patch.object(type(running.engine), "_filled", lambda *of: [[] for _ in of[3]])
    services.grains.overran(signed)
    with dropped, pytest.raises(GrainTooSmallError, match="largest slots"):
        running.run(services.grains.of(signed))


def test_empty_slots_abstain_and_long_ones_are_shortened_by_themselves(running):
    long = slot(7, 40)
    for kept in range(40, 0, -1):  # the longest end that fits gives the expected output
        shorter = running.ask(CLASSIFY, [long[-kept:]])[0]
        if not np.array_equal(shorter, running.ask(CLASSIFY, [long])[0]):
            break
    assert 5 < kept < 35
    endless = (Exemplar(fields={"text": "lamp " * 2000, "team": "Keys"}, embedding=None),)
    outputs = running.ask(CLASSIFY, [(), long, endless, SLOTS[0]])
    assert outputs[0] is None
    assert outputs[2] is None
    assert outputs[1] is not None
    assert np.array_equal(outputs[3], running.ask(CLASSIFY, SLOTS[:1])[0])


def test_a_query_that_does_not_fit_is_refused(running):
    with pytest.raises(UnanswerableQueryError, match="shorter"):
        running.zero_shot(CLASSIFY, {"text": "lamp " * 2000})
    roomy = replace(CLASSIFY, slot_tokens=480)  # with room for exemplars too
    with pytest.raises(UnanswerableQueryError, match="slot_tokens"):
        running.zero_shot(roomy, {"text": "lamp " * 40})
    running.zero_shot(replace(CLASSIFY, slot_tokens=300), {"text": "lamp " * 40})
    twins = TaskSpec("support.queue@1", ("Keys", "Keys"), PROMPT, "team", knowledge_base="support")
    with pytest.raises(UnanswerableQueryError, match="rename"):
        running.zero_shot(twins)


def test_a_full_queue_refuses_the_probe_and_cancellation_empties_it(running):
    unfinished = running.engine._llm.get_num_unfinished_requests

    async def flood():
        many = replace(GENERATE, ensemble=200)
        zero_shot = await running.engine.zero_shot(many, QUERY)
        slots = [slot(n) for n in range(200)]
        work = asyncio.create_task(running.engine.contributions(many, QUERY, slots, zero_shot))
        while not (unfinished() and running.engine._admission.in_flight):  # noqa: ASYNC110  (vLLM has no event for it)
            await asyncio.sleep(0)
        with pytest.raises(EngineBusyError):
            await running.engine.zero_shot(GENERATE, QUERY)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        while unfinished():  # noqa: ASYNC110
            await asyncio.sleep(0)
        return await running.engine.zero_shot(GENERATE, QUERY)

    assert running.run(flood()).texts


@pytest.mark.parametrize("asked", [CLASSIFY, GENERATE, WRITTEN], ids=["labels", "texts", "one text"])
def test_being_busy_reveals_nothing_of_the_sample(running, asked):
    """Prompts count as the plan announces them: slots that are empty, or more than expected, change nothing."""

    async def counted(slots):
        task = replace(asked, ensemble=50)
        zero_shot = await running.engine.zero_shot(task, QUERY)
        ask = running.engine.write if task.writing else running.engine.contributions
        work = asyncio.create_task(ask(task, QUERY, slots, zero_shot))
        while not (in_flight := running.engine._admission.in_flight):
            assert not work.done()
            await asyncio.sleep(0)
        await work
        assert running.engine._admission.in_flight == 0
        return in_flight

    assert [running.run(counted(slots)) for slots in ([()] * 8, SLOTS, SLOTS * 9)] == [50] * 3


def test_it_describes_how_it_runs(running):
    info = running.run(running.engine.describe())
    assert (info.name, info.is_llm, info.remote) == ("vllm", True, False)
    assert str(running.folder.parent) not in info.notice


def test_the_flag_that_kills_it_on_a_cpu_is_refused(running, monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(EngineUnavailableError, match="VLLM_BATCH_INVARIANT"):
        open_engine(VllmConfig(name="vllm", model=str(running.folder)), None)  # type: ignore[arg-type]


@pytest.mark.lengthy
def test_an_evaluation_asks_it_once_and_ends_it(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:
    """Slots and then sentences, on one event loop. The next run starts no engine: it could not."""
    rows = [{"unit_id": str(i), **exemplar(i).fields} for i in range(12)]
    for name, chosen in (("train", rows[:9]), ("test", rows[9:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in chosen))
    plan = yaml.safe_load(TEXT_PLAN.format(mechanism="type: keyword_joint_em, k: 1", epsilon=8, answers=2))
    prompt = {"exemplar": "{text}: {team}", "query": "{text}:"}
    sizes = {"shots": 2, "ensemble": 3, "slot_tokens": 200}
    plan["tasks"]["story"] |= {**sizes, "response_field": "team", "prompt": prompt}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    model = make_tiny_model(tmp_path / "model", context=512)
    engine = {"name": "vllm", "model": str(model), "dtype": "float32", "enforce_eager": True, "kv_cache_gib": 1}
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump({**engine, "max_answer_tokens": 8, "max_model_len": 512}))
    run = ["eval", tmp_path, "--plan", tmp_path / "plan.yaml", "--engine-config", tmp_path / "engine.yaml", "--json"]
    run += ["--replies", tmp_path / "kept", "--draws", 2, "--epsilon", 8]
    before = set(psutil.Process().children(recursive=True))
    first = json.loads(dpicl.ok(*run, "--mechanism", "{type: keyword_joint_em, k: 1}"))
    left = set(psutil.Process().children(recursive=True)) - before
    # vLLM does not wait for those that it has killed.
    _, running = psutil.wait_procs([child for child in left if child.name().startswith(("VLLM::", "EngineCore"))], 60)
    assert not running
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")  # which no engine on a CPU starts with
    assert json.loads(dpicl.ok(*run, "--mechanism", "{type: embedding_mean}"))[:2] == first[:2]
    monkeypatch.delenv("VLLM_BATCH_INVARIANT")
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump({**engine, "model": str(tmp_path)}))
    assert "config.json" in dpicl.fails(*run)
