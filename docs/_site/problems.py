"""The reference of problems, from the table that the API answers with."""

from __future__ import annotations

import json

from service.gateway.api.problems import MEDIA_TYPE, ROUTE, Problem
from service.problem_kinds import ProblemKind

_HEAD = """# Problems

For callers and their programs: every error that the service answers with, and what to do about it.
Each is a problem document (RFC 9457, `{media_type}`):

```json
{example}
```

Programs should read `error.code` or the end of `type`: both name the kind of problem and are stable.
`type` begins with [`DPICL_PROBLEM_BASE`](settings.md#environment) and leads to an explanation.
`detail` explains what to do and may change; `problems` lists several things.
`error` is for OpenAI's clients.

The header `x-request-id` names the request in the service's log.
You can send your own (1 to 64 letters, digits and hyphens).

Problems never depend on private data: once a sample is drawn, an answer is released.
`Retry-After` names the seconds after which to retry; `x-should-retry: false` asks not to.
If a problem persists, ask the operator.

"""
_EXAMPLE = Problem(
    ProblemKind.ANSWERS_EXHAUSTED,
    "task 'queue' of plan 1 of knowledge base 'support' has used all its 500 answers; ...",
)
_MORE = {
    ProblemKind.REMOTE_ENGINE_FORBIDDEN: "../admin.md#a-knowledge-base",
    ProblemKind.CONTEXT_NOT_SUPPORTED: "../analyst.md#from-an-openai-client",
    ProblemKind.SANITIZER_UNAVAILABLE: "../sanitization.md#over-http",
    ProblemKind.EPSILON_NOT_ATTAINABLE: "../sanitization.md#over-http",
    ProblemKind.TEXT_BUDGET_EXHAUSTED: "../sanitization.md#what-texts-have-cost",
    ProblemKind.UNKNOWN_BUNDLE: "../restore.md#over-http",
    ProblemKind.BUNDLE_DIFFERS: "../restore.md#over-http",
    ProblemKind.STEERING_NOT_SERVED: "../restore.md#over-http",
    ProblemKind.OTHER_EMBEDDING_MODEL: "../models.md#embeddings",
    ProblemKind.WRONG_ENCRYPTION_KEY: "../maintenance.md#change-the-encryption-key",
}


def page() -> str:
    """Every kind of problem."""
    example = json.dumps(_EXAMPLE.document(f"{ROUTE}/"), indent=2)
    return _HEAD.format(media_type=MEDIA_TYPE, example=example) + "\n".join(map(_section, ProblemKind))


def _section(kind: ProblemKind) -> str:
    more = f" [More]({_MORE[kind]})." if kind in _MORE else ""
    return f"## {kind.slug}\n\n**{kind.status or 'Any other status'}.** {kind.explanation}{more}\n"
