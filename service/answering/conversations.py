"""A conversation, rewritten as one question that stands alone: in public, before anything is charged.

A language model is asked without exemplars, at temperature 0. It sees a fixed instruction and the caller's own turns,
so its text depends on nothing private. That text is then a question like any other: checked, charged, and answered from
its stored release if it was asked before.

Rewriting takes a turn (:mod:`.turns`): nothing private is computed meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.queries import MAX_QUERY_CHARACTERS, InvalidQueryError, checked_text
from service.answering.stages import Stages
from service.engines.errors import UnusableReplyError
from service.engines.prompts import BETWEEN
from service.engines.task import Prompt, TaskSpec
from service.problem_kinds import ProblemKind, RefusalError

_INSTRUCTION = (
    "Rewrite the user's last message so that it can be understood without the conversation: replace words that refer "
    "to earlier messages by what they refer to. Keep its meaning and its language, and add nothing else. Do not answer "
    "it. Reply with the rewritten message alone."
)
_REWRITTEN = "rewritten"
_CUE = "Rewritten message:"
_SPEAKERS = {"user": "User", "assistant": "Assistant"}
_REMEMBERED = 200


class ContextNotSupportedError(RefusalError, ValueError):
    """The question comes with earlier turns or instructions that it cannot be answered with. Nothing was charged."""

    kind = ProblemKind.CONTEXT_NOT_SUPPORTED


@dataclass(frozen=True)
class Turn:
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Conversation:
    """At least two turns, the last of which is the user's."""

    turns: tuple[Turn, ...]


@dataclass(eq=False, repr=False)
class Rewriting:
    """Rewrites conversations.

    Attributes:
        stages: stages whose engine is asked.
        grain_s: seconds; a question is rewritten in a whole number of these; 0 does not wait.
    """

    stages: Stages
    grain_s: float
    _known: dict[tuple[str, str, Conversation], str] = field(default_factory=dict, init=False)

    async def question(
        self,
        address: str,
        task: ClassifyTask | GenerateTask,
        conversation: Conversation,
        *,
        asker: str,
        before: Callable[[], Awaitable[None]],
    ) -> str:
        """The question of a conversation. The newest are remembered, for requests that are sent again.

        Args:
            address: address of the task.
            task: task that the question is for.
            conversation: turns of the caller.
            asker: see :class:`service.engines.task.TaskSpec`.
            before: called before a conversation is rewritten; raises if its question would be refused anyway.

        Raises:
            ContextNotSupportedError: the task's plan does not allow it, or the engine cannot write.
            InvalidQueryError: the newest turn is empty, or the turns are too long together, or not text.
            service.engines.errors.EngineUnavailableError: the engine is down or busy, or replies with no whole text.
            service.engines.errors.UnanswerableQueryError: the engine can never rewrite this conversation.
            service.records.text_ledger.TextBudgetExhaustedError: sanitised, the turns would cost too much.
            TimeoutError: it took too long.
        """
        if task.earlier_turns == "refuse":
            raise ContextNotSupportedError(
                f"{address} answers a question by itself: earlier turns are for tasks with `earlier_turns: rewrite` in "
                "their plan. Send the newest user message alone (in a chat, start a new one); or send the header "
                "'x-dpicl-context: ignore' if what came before may be ignored"
            )
        engine = await self.stages.engine.describe()
        if not engine.is_llm:
            raise ContextNotSupportedError(
                f"earlier turns need a language model, and this service runs {engine.name}: send the newest user "
                "message alone, as a question that stands alone"
            )
        conversation = _checked(conversation)
        key = asker, address, conversation
        if key not in self._known:
            await before()
            async with self.stages.free_call(self.grain_s):
                question = await self._rewritten(address, conversation, asker)
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = question
        return self._known[key]

    async def _rewritten(self, address: str, conversation: Conversation, asker: str) -> str:
        spec, fields = as_task(address, conversation, asker)
        written = await self.stages.zero_shot(spec, fields)
        if written.cut:
            raise UnusableReplyError(
                "the language model was cut off while it rewrote the conversation: send a shorter question; or the "
                "operator must raise the engine's max_answer_tokens"
            )
        question = "".join(written.texts[:1]).strip()
        if not question:
            raise UnusableReplyError("the language model rewrote the conversation as an empty question")
        return question


def as_task(address: str, conversation: Conversation, asker: str) -> tuple[TaskSpec, Mapping[str, str]]:
    """A conversation as an engine sees it: a task for texts, and its query with a field for each turn.

    So each turn is sanitised by itself where questions are, and turns that were sanitised before cost nothing.

    Args:
        address: address of the task that the question is for.
        conversation: turns of the caller.
        asker: see :class:`service.engines.task.TaskSpec`.
    """
    fields = {f"turn_{number}": turn.text for number, turn in enumerate(conversation.turns)}
    lines = [f"{_SPEAKERS[turn.role]}: {{{name}}}" for name, turn in zip(fields, conversation.turns, strict=True)]
    spec = TaskSpec(
        name=address,
        labels=(),
        prompt=Prompt(_INSTRUCTION, f"{_CUE} {{{_REWRITTEN}}}", BETWEEN.join([*lines, _CUE])),
        answer_field=_REWRITTEN,
        input_field=list(fields)[-1],
        kind="generate",
        candidates=1,
        knowledge_base=f"conversations of {address}",
        asker=asker,
    )
    return spec, fields


def _checked(conversation: Conversation) -> Conversation:
    """The same, its texts as questions have them."""
    turns = tuple(Turn(turn.role, checked_text(turn.text)) for turn in conversation.turns)
    if not turns[-1].text:
        raise InvalidQueryError("the newest message is empty")
    if sum(len(turn.text) for turn in turns) > MAX_QUERY_CHARACTERS:
        raise InvalidQueryError(
            f"a conversation has at most {MAX_QUERY_CHARACTERS} characters: leave out its earliest turns"
        )
    return Conversation(turns)
