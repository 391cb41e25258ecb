"""Configurations of engines: the ``engine`` of a Serve config's ``args``, checked before anything starts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from accounting.plans.described import Described
from sanitization.mechanisms import SMALLEST_EPSILON, MechanismName
from sanitization.response import LARGEST_EPSILON
from sanitization.tokens import Keepable
from sanitization.whole import WholeName, kept


class _Config(Described):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    is_llm: ClassVar[bool] = False
    """Whether it runs a language model."""


class NearestExemplarConfig(_Config):
    """The embedded engine, without a language model."""

    name: Literal["nearest_exemplar"] = "nearest_exemplar"


class _LanguageModel(_Config):
    """Settings of how a language model is asked, for all tasks."""

    is_llm = True

    model: str = Field(min_length=1)
    """``smollm2``, a folder, a GGUF file or a Hugging Face model id; or what a remote endpoint calls it."""
    max_answer_tokens: int = Field(default=128, ge=1, le=100_000)
    """Longest text a slot may answer with."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Temperature of slots' texts; 0 takes the likeliest token. Zero-shot candidates after the first are drawn at 1."""
    max_queued_prompts: int = Field(default=2000, ge=1)
    """While a replica has more prompts than this, new queries get a 429. A query's prompts count until its answer
    leaves: for a whole latency grain."""
    timeout_s: float = Field(default=50.0, gt=0, le=3600)
    """Slots not answered by then abstain. Below ``DPICL_QUERY_TIMEOUT_S``, or all of them do."""


class VllmConfig(_LanguageModel):
    """vLLM inside the engine's replica, on GPUs or, with its CPU build, on the CPU."""

    name: Literal["vllm"]
    chat: bool | None = None
    """Whether prompts go through the model's chat template. Unless set, those for texts do if it has one, and those for
    labels, and for texts that slots write together, do not: these go on from the exemplars."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed to the chat template, such as ``enable_thinking: false``."""
    revision: str | None = None
    """Commit of the model's repository; pin it in production."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """``auto`` takes the model's; GGUF files' then computes with integers on a processor that is faster so."""
    quantization: str | None = None
    load_format: str = "auto"
    """vLLM's; ``dummy`` gives random weights, for benchmarks."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Longest prompt and answer together, in tokens; the model's own limit unless set."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share the model. Reserve as many with the deployment's ``ray_actor_options: {num_gpus: ...}``."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    kv_cache_gib: int = Field(default=2, ge=1)
    """Memory for the key-value cache on a CPU."""
    max_num_seqs: int = Field(default=256, ge=1)
    """Prompts computed at once."""
    max_writing_slots: int = Field(default=200, ge=1)
    """Slots that may write an answer together, beside prompts: at least as many as a plan's ensemble of
    ``token_ensemble`` may draw. Each holds a place and a part of the cache until the answer is written."""
    prefix_caching: bool = True
    """Keep the beginnings of prompts, which pays where a task samples by blocks."""
    enforce_eager: bool | None = None
    """Start sooner, run slower; unless set, on CPUs only. There a model of 135 million parameters starts in half a
    minute, without it in two, and is as fast afterwards."""
    isolation: Literal["strict", "best_effort"] = "strict"
    """``strict`` refuses to start on a GPU that cannot compute a prompt the same whatever shares its batch."""


class SanitizeConfig(_Config):
    """Settings of the sanitiser. Needs ``DPICL_SANITIZER_WORDS``, or ``DPICL_PUBLIC_TEXTS`` for ``whole_rr``."""

    epsilon: float = Field(default=8.0, ge=SMALLEST_EPSILON, le=LARGEST_EPSILON)
    """The most that ε of a word may be, or with ``whole_rr`` of a question."""
    mechanism: Literal[MechanismName, WholeName] = "medoid_rr"
    keep: tuple[Keepable, ...] | None = Field(default=None, strict=False)
    """Parts of a question that are kept: unless given, stopwords and punctuation, and with ``whole_rr`` none."""

    @model_validator(mode="after")
    def _keeps_what_it_can(self) -> SanitizeConfig:
        kept(self.mechanism, self.keep)
        return self


class RealignConfig(_Config):
    """A chat-completions server on this machine, such as Ollama, which fits texts to questions as they were asked."""

    base_url: str = Field(pattern=r"^http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?(/[^\s?#@]*)?$")
    """On the loopback interface: it sees questions in clear text."""
    model: str = Field(min_length=1)
    max_answer_tokens: int = Field(default=256, ge=1, le=100_000)
    timeout_s: float = Field(default=30.0, gt=0, le=600)


class OpenAiCompatibleConfig(_LanguageModel):
    """A remote endpoint that speaks OpenAI's chat completions. It sees exemplars in clear text, unless they are kept
    ``local``, and questions, unless ``sanitize`` is set.

    Its key, if it takes one, is ``DPICL_REMOTE_API_KEY`` in the environment, never in a config.
    """

    name: Literal["openai_compatible"]
    base_url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$")
    """Such as ``https://api.openai.com/v1``; without a name or password in it."""
    isolation: Literal["best_effort"]
    """Must be written: the service cannot know what a remote server lets one prompt do to another."""
    constrain_labels: bool = False
    """Have the server allow nothing but a task's labels, by a JSON schema (``response_format``): OpenAI, vLLM and
    Ollama can. Unless set, labels are found in what the model writes: slots abstain where it writes none, and questions
    that get none without exemplars are refused, uncharged."""
    max_concurrency: int = Field(default=32, ge=1, le=10_000)
    """Requests at once."""
    max_attempts: int = Field(default=4, ge=1, le=20)
    """Tries of a prompt before its slot abstains."""
    request_timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Limit of one try."""
    sanitize: SanitizeConfig | None = None
    """Replaces the words of questions before they leave. It protects who asks, not the exemplars."""
    exemplars: Literal["remote", "local"] = "remote"
    """With ``sanitize``: ``local`` has the built-in engine answer slots, so that exemplars do not leave, and the
    endpoint give zero-shot answers only."""
    realign: RealignConfig | None = None
    """With ``sanitize``: a trusted model that fits released texts to questions as they were asked."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further members of each request; they replace the engine's own, and null leaves one out. Reasoning models, for
    example, may need ``{max_tokens: null, max_completion_tokens: 4000, temperature: null}``."""

    @model_validator(mode="after")
    def _sanitises_for_what_needs_it(self) -> OpenAiCompatibleConfig:
        if self.sanitize is None and (self.exemplars == "local" or self.realign):
            raise ValueError("exemplars: local and realign need sanitize, which sets how questions leave")
        return self

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_question_alone(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if kept := sorted({"model", "messages", "stream", "n"} & extra.keys()):
            raise ValueError(f"the engine sets {', '.join(kept)} itself")
        return extra


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


AnyEngineConfig = NearestExemplarConfig | VllmConfig | OpenAiCompatibleConfig
EngineConfig = Annotated[Annotated[AnyEngineConfig, Field(discriminator="name")], BeforeValidator(_named)]
"""An engine's name alone, or a mapping with its name and settings."""
