"""The rules for a query, and a signed task as engines see it."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from accounting.plans.plan import Plan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import KnowledgeBase
from service.engines.prompts import BETWEEN, CHARACTERS_PER_TOKEN, showing
from service.engines.task import Prompt, TaskSpec
from service.problem_kinds import ProblemKind, RefusalError

MAX_QUERY_CHARACTERS = 20_000


class InvalidQueryError(RefusalError, ValueError):
    """The query cannot be asked of this task; the message names what to send instead. Nothing was charged."""

    kind = ProblemKind.INVALID_QUERY


def check_query(task: ClassifyTask | GenerateTask, query: str | Mapping[str, str]) -> dict[str, str]:
    """The query's fields, in Unicode NFC and without surrounding white space.

    A text is the query of a task of one field, whatever it looks like. For a task of several, it is the JSON object
    that holds them.

    Raises:
        InvalidQueryError: fields missing, unknown, empty or too long.
    """
    wanted = task.query_fields
    if isinstance(query, str):
        query = {wanted[0]: query} if len(wanted) == 1 else _object(query, wanted)
    if missing := [name for name in wanted if name not in query]:
        raise InvalidQueryError(f"the query lacks {', '.join(missing)}")
    if unknown := sorted(set(query) - set(wanted)):
        raise InvalidQueryError(
            f"the query has unknown fields {', '.join(map(repr, unknown))}; this task takes {', '.join(wanted)}"
        )
    fields = {name: checked_text(query[name]) for name in wanted}
    if empty := [name for name, text in fields.items() if not text]:
        raise InvalidQueryError(f"{', '.join(empty)} is empty")
    if any(len(text) > MAX_QUERY_CHARACTERS for text in fields.values()):
        raise InvalidQueryError(f"a query holds at most {MAX_QUERY_CHARACTERS} characters per field")
    return fields


def _object(text: str, wanted: Sequence[str]) -> dict[str, str]:
    try:
        members = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        members = None
    # An object is a tuple of pairs here, and every other value is something else.
    if not isinstance(members, tuple) or not all(isinstance(value, str) for _, value in members):
        raise InvalidQueryError(
            f"this task needs the fields {', '.join(wanted)}: send them as an object of texts, in JSON where the "
            "question is one text"
        )
    fields = dict(members)
    if len(fields) != len(members):
        raise InvalidQueryError("the query names a field twice")
    return fields


def checked_text(text: str) -> str:
    """A text of a caller, in Unicode NFC and without surrounding white space.

    Raises:
        InvalidQueryError: it is not Unicode text.
    """
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
        raise InvalidQueryError("a query is Unicode text without NUL characters and unpaired surrogates")
    return unicodedata.normalize("NFC", text).strip()


def check_threshold(task: ClassifyTask | GenerateTask, abstain_below: float | None) -> float | None:
    """Below which score an answer is shown as an abstention: the caller's threshold, or the task's.

    Raises:
        InvalidQueryError: the task gives no score.
    """
    if isinstance(task, ClassifyTask) and task.mechanism.gives_score:
        return task.abstain_below if abstain_below is None else abstain_below
    if abstain_below is not None:
        raise InvalidQueryError("abstain_below: this task's answers have no score; leave it out")
    return None


def embedded_field(plan: Plan, task_name: str, name: str | None = None) -> str:
    """The field that exemplars and queries are compared by: the one named, or the first of the query's.

    Raises:
        ValueError: the query has no field of that name.
    """
    fields = plan.tasks[task_name].query_fields
    if name is not None and name not in fields:
        raise ValueError(f"the queries of {task_name} have no field {name!r}; they have {', '.join(fields)}")
    return name or fields[0]


def response_field(task: ClassifyTask | GenerateTask) -> str | None:
    """The field whose texts the task's answers are taken from; None if they are labels, or lines of a document."""
    return task.answer_field if isinstance(task, GenerateTask) and task.document_field is None else None


def prompt_of(task: ClassifyTask | GenerateTask) -> Prompt:
    """The templates of a task, with its public exemplars."""
    templates = Prompt(task.prompt.instruction, task.prompt.exemplar, task.prompt.query)
    if isinstance(task, ClassifyTask):
        templates = replace(templates, labels=task.labels, label_field=task.label_field)
    else:
        templates = replace(templates, keywords=task.prompt.keywords)
    return showing(templates, task.public_exemplars)


def public_tokens(task: ClassifyTask | GenerateTask) -> int:
    """Tokens of a task's public exemplars in a prompt, roughly."""
    return len(BETWEEN.join(prompt_of(task).public)) // CHARACTERS_PER_TOKEN


def described_spec(
    address: str,
    task: ClassifyTask | GenerateTask,
    described: KnowledgeBase,
    *,
    asker: str,
    latency_grain_s: float = 0.0,
    cached_for: str | None = None,
) -> TaskSpec:
    """A task of a knowledge base as engines see it.

    Args:
        address: address of the task.
        task: task that is signed or not.
        described: knowledge base of the task.
        asker: see :class:`service.engines.task.TaskSpec`.
        latency_grain_s: seconds of a grain; an answer takes a whole number of grains.
        cached_for: name under which prompts are cached, if not the knowledge base's.
    """
    return task_spec(
        address,
        task,
        cached_for or described.name,
        described.embedded_field,
        latency_grain_s,
        response_field=described.response_field,
        asker=asker,
    )


def task_spec(
    address: str,
    task: ClassifyTask | GenerateTask,
    knowledge_base: str,
    embedded_field: str,
    latency_grain_s: float = 0.0,
    *,
    response_field: str | None,
    asker: str,
) -> TaskSpec:
    """A task as engines see it.

    Args:
        address: address of the task.
        task: task that is signed or not.
        knowledge_base: knowledge base with the slots' exemplars.
        embedded_field: field whose embedding is stored; exemplars and queries are compared by it.
        latency_grain_s: seconds of a grain; an answer takes a whole number of grains.
        response_field: the other field whose embedding is stored, None for none.
        asker: see :class:`service.engines.task.TaskSpec`.
    """
    spec = TaskSpec(
        name=address,
        labels=(),
        prompt=prompt_of(task),
        public_exemplars=task.public_exemplars,
        answer_field=task.answer_field,
        input_field=embedded_field,
        shots=task.shots,
        ensemble=0 if task.slots == "quote" else task.ensemble,
        most_slots=task.most_slots,
        slot_tokens=0 if task.slots == "quote" else task.slot_room,
        quotes=task.slots == "quote",
        knowledge_base=knowledge_base,
        latency_grain_s=latency_grain_s,
        asker=asker,
    )
    match task:
        case ClassifyTask():
            return replace(
                spec,
                labels=task.labels,
                label_descriptions=task.label_descriptions,
                calibration=task.calibration_queries,
                own_reference=task.own_share,
            )
        case GenerateTask():
            return replace(
                spec,
                kind="generate",
                candidates=task.candidates,
                public_answers=task.public_answers,
                document_field=task.document_field,
                responses_embedded=task.answer_field == response_field,
            )
