"""All kinds of problem that the API reports: one table, from which errors, metrics and the reference are made."""

from collections.abc import Mapping
from enum import Enum, unique
from typing import Any, ClassVar


@unique
class ProblemKind(Enum):
    """A kind of problem. Its name is stable: programs act on it.

    Attributes:
        status: HTTP status code; 0: the status that the web framework chooses.
        explanation: sentences for callers: the cause, whether anything was charged or changed, and the remedy.
    """

    def __init__(self, status: int, explanation: str) -> None:
        self.status = status
        self.explanation = explanation

    @property
    def slug(self) -> str:
        """The last part of the ``type`` URI."""
        return self.name.lower().replace("_", "-")

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ").capitalize()

    # Asking
    ANSWERS_EXHAUSTED = 402, "The task's answers are used up. Nothing was charged. New questions need another plan."
    QUOTA_EXHAUSTED = 402, "Your key has used its quota. Nothing was charged. An admin can raise it."
    REMOTE_ENGINE_FORBIDDEN = (
        403,
        "The knowledge base does not allow a language model outside the service. Nothing was charged. An "
        "admin can allow it.",
    )
    RELEASE_NOT_MADE = (
        409,
        "The task answers from a one-time release, made when its plan is signed, and it is not there. Nothing was "
        "charged. The detail names what an admin can do.",
    )
    UNKNOWN_TASK = 404, "The task does not exist in that plan. Nothing was charged. `GET /v1/models` lists tasks."
    PLAN_RETIRED = (
        410,
        "The plan is retired: its tasks answer no more, permanently. Nothing was charged or changed. Ask a task of "
        "another plan.",
    )
    UNKNOWN_PLAN = 404, "The knowledge base has no signed plan of this version. Nothing was changed."
    INVALID_QUERY = (
        422,
        "A field is missing, unknown, empty, too long or not text. Nothing was charged. `GET "
        "/v1/tasks/{task}` lists the fields.",
    )
    CONTEXT_NOT_SUPPORTED = (
        422,
        "A request has a system message, or earlier turns of a conversation that the task or the engine cannot take. "
        "Nothing was charged. Send only the newest message, or use `x-dpicl-context: ignore`.",
    )
    IDEMPOTENCY_CONFLICT = (
        422,
        "This `Idempotency-Key` names another request, question or task version. Nothing was charged or changed. Use "
        "a new key per request, or none.",
    )
    STILL_ANSWERING = (
        429,
        "Another request for this question is taking long. Nothing was charged for this request. A retry will be free.",
    )
    BUSY = 429, "The service or its engine is at its limit. Nothing was charged."
    ENGINE_UNAVAILABLE = 503, "The engine does not answer. Nothing was charged."
    UNUSABLE_REPLY = (
        503,
        "The language model answers, but with no label or no text: it thinks aloud, for example, or ignores the JSON "
        "schema. Nothing was charged. The operator must change how it is asked; the detail explains how.",
    )
    MEASURING = 503, "`/readyz` only: the service still measures how long answers can take. Nothing was charged."
    LATENCY_GRAIN_TOO_SMALL = (
        503,
        "The task's largest slots take longer than half of `DPICL_LATENCY_GRAIN_MS`, or than the engine may take, so "
        "answer times could reveal private data. Nothing was charged. Other tasks are answered. The operator can raise "
        "the limit, or an admin sign a smaller plan and retire this one.",
    )

    # Sanitising
    SANITIZER_UNAVAILABLE = (
        503,
        "The service sanitises no texts, or still embeds its words. Nothing was charged, and nothing was sanitised. "
        "The operator can set `DPICL_SANITIZER_WORDS`, or `DPICL_PUBLIC_TEXTS` for `whole_rr`.",
    )
    EPSILON_NOT_ATTAINABLE = (
        422,
        "No sanitiser has such an ε; `least` and `largest` give the range. Nothing was charged.",
    )
    TEXT_BUDGET_EXHAUSTED = (
        403,
        "The texts would cost more ε than your key's texts may cost together. Nothing was charged, and none of "
        "them was sanitised. Texts sanitised before are free.",
    )

    # Restoring
    UNKNOWN_BUNDLE = (
        422,
        "This service has no such bundle. Nothing was charged here, and your ledger keeps what was drawn. "
        "`GET /v1/restore/bundles` lists bundles.",
    )
    BUNDLE_DIFFERS = (
        409,
        "The bundle is another one here than where the text was redacted. Nothing was charged here. Ask the publisher "
        "of the bundle.",
    )
    STEERING_NOT_SERVED = 422, "No engine here can be steered. Nothing was charged here. Ask with `mode: text`."

    # Keys
    MISSING_KEY = 401, "The request has no API key. Nothing was charged. Send `Authorization: Bearer dpicl_...`."
    INVALID_KEY = 401, "The API key is unknown, revoked or expired. Nothing was charged. Ask an admin."
    OUT_OF_SCOPE = (
        403,
        "The key is for other tasks. Nothing was charged. `GET /v1/models` lists those it may ask; an admin can make "
        "another key.",
    )
    WRONG_ROLE = 403, "The key's role may not do this; the detail names roles that may. Nothing was charged or changed."
    UNCONFIRMED = (
        422,
        "You must confirm this first; the detail gives the reason. Nothing was changed. To confirm it, repeat the "
        "request with `?confirm=` and the word in the problem's member `confirm`, or, for these figures alone, its "
        "`token`.",
    )
    RATE_LIMITED = (
        429,
        "The key sends too many requests per minute. Nothing was charged. `RateLimit-Policy` and `RateLimit` "
        "show the limit and the rest.",
    )
    UNKNOWN_KEY = 404, "No API key has this id. Nothing was changed."
    KEY_ROTATED = 409, "Another request rotated the key meanwhile. Nothing was changed. Read the key, then decide."

    # Budgets and plans
    BUDGET_EXCEEDED = 402, "The plan exceeds the free budget. Nothing was promised."
    PLANS_CHANGED = (
        409,
        "Another plan was signed in the meantime. Nothing was promised. Read the plans, then decide.",
    )
    PLAN_SIGNED_ALREADY = (
        409,
        "This very plan is signed, as the version in the problem's member `again`. Nothing was promised. To take its "
        "budget once more, repeat the request with `?again=` and that version.",
    )
    PLAN_NOT_APPROVED = (
        403,
        "A second person must approve each plan, by a signature over its file, and this one has no such approval; or "
        "an approval was given where none is demanded. Nothing was promised. The detail names the persons and how they "
        "sign.",
    )
    INVALID_PLAN = (
        422,
        "The plan cannot be read, calibrated or signed; `problems` lists the reasons. Nothing was promised. Check "
        "corrections with `?dry_run=true`.",
    )
    ACCOUNTANTS_DISAGREE = (
        422,
        "Two accountants contradict each other. Nothing was promised. Change the numbers a little, and please "
        "report it.",
    )

    # Knowledge bases
    UNKNOWN_KNOWLEDGE_BASE = 404, "This knowledge base does not exist. Nothing was changed."
    KNOWLEDGE_BASE_EXISTS = (
        409,
        "A knowledge base with this name exists. Nothing was changed. Choose another name: a lifetime budget is final.",
    )
    COHORT_REFUSED = (
        409,
        "The cohort does not exist, is closed, or cannot be opened or closed now. Nothing was changed. The detail "
        "names the next step.",
    )
    UNKNOWN_GROUP = 404, "No group has this name. Nothing was changed. `GET /v1/groups` lists them."
    GROUP_REFUSED = (
        409,
        "There is such a group already, the knowledge base is in one, or its plans promise more than the group has "
        "left. Nothing was changed. The detail names the reason.",
    )
    KNOWLEDGE_BASE_ARCHIVED = (
        409,
        "The knowledge base is archived permanently: it takes no plan, cohort or exemplar. Nothing was changed.",
    )
    KNOWLEDGE_BASE_NOT_EMPTY = (
        409,
        "Only an empty knowledge base can be deleted: without a plan, a group, or an upload of exemplars at any time. "
        "Nothing was changed. Archive it instead.",
    )
    INVALID_KNOWLEDGE_BASE = (
        422,
        "A field name, the embedded field or the response field is invalid. Nothing was created.",
    )
    UNSUPPORTED_MEDIA_TYPE = (
        415,
        "An upload is neither JSON Lines nor CSV, or its encoding is not known. Nothing was stored. Send "
        "`Content-Type: application/x-ndjson` or `text/csv`, in UTF-8 or with a charset.",
    )
    UPLOAD_TOO_LARGE = 413, "The upload exceeds the limit. Nothing was stored. Send several or use `dpicl kb ingest`."
    BAD_ROW = 422, "The row and field in the detail cannot be stored. Nothing was stored, not even other rows."
    UNIT_TOO_LARGE = (
        422,
        "A privacy unit would exceed 1,000 exemplars or 262,144 bytes of text. Nothing was stored. Check the "
        "unit column.",
    )
    MADE_UP_DATA = (
        403,
        "The service runs on made-up data under a published key (`dpicl serve --synthetic`). Nothing was "
        "stored. Use a service with your own key.",
    )
    UNKNOWN_UNIT = 404, "The knowledge base has nothing of this unit. Nothing was changed."
    UNKNOWN_RELEASE = 404, "No release has this id. Nothing was charged."

    # Any request
    BAD_ADDRESS = 400, "The address contains a NUL character. Nothing was charged."
    UNREADABLE_BODY = 400, "The body is not UTF-8 text. Nothing was charged."
    NOT_FOUND = 404, "The address does not exist. Nothing was charged."
    METHOD_NOT_ALLOWED = 405, "The address does not take this method. Nothing was charged. See the `Allow` header."
    BODY_TOO_LARGE = 413, "The body is too large for this address. Nothing was charged."
    HEADERS_TOO_LARGE = 431, "The headers exceed 64 KiB together. Nothing was charged."
    BODY_TOO_SLOW = 408, "The body did not arrive within 30 seconds. Nothing was charged."
    INVALID_REQUEST = (
        422,
        "A parameter, header or member is missing, unknown or out of range; `problems` names each. Nothing "
        "was charged.",
    )
    UNKNOWN_CURSOR = (
        422,
        "`after` names an entry that is not there. Nothing was charged. Follow `next`, or omit `after`.",
    )
    REQUEST_IN_PROGRESS = (
        409,
        "A request with this `Idempotency-Key` is being done. Nothing was changed by this one. Send it again after "
        "`Retry-After` seconds, for the response.",
    )
    DONE_BEFORE = (
        409,
        "A request with this `Idempotency-Key` was done before, and its response is not kept: it showed a key's token, "
        "or the service stopped before it was stored. Nothing was changed by this one.",
    )
    HTTP_ERROR = 0, "The web framework refused the request. Nothing was charged."
    INTERNAL_ERROR = (
        500,
        "Something failed unexpectedly. Perhaps charged, if it was a question. Retrying is safe: it is free "
        "if it was answered. Give the operator the `x-request-id`.",
    )
    DATABASE_UNAVAILABLE = (
        503,
        "The database does not answer. Perhaps charged, if it was a question. Retrying is safe: it is free if "
        "it was answered.",
    )
    WRONG_ENCRYPTION_KEY = (
        503,
        "The service has another encryption key than the knowledge base. Nothing was charged. The operator "
        "must start it with the right key.",
    )
    OTHER_EMBEDDING_MODEL = (
        503,
        "The knowledge base was embedded by another model than the service has. Nothing was charged. The operator "
        "must set DPICL_EMBEDDING_MODEL to that one.",
    )
    STOPPING = 503, "The service is about to stop. Nothing was charged. Retry in a moment."
    LEDGER_RESTORED = (
        503,
        "The ledger was restored and lacks later charges. Nothing was charged. The operator must run `dpicl "
        "ledger status` and `dpicl ledger acknowledge`.",
    )
    TRAIL_NOT_SIGNED = (
        409,
        "The audit trail is not signed here, or no longer continues what was signed. Nothing was charged or changed. "
        "The detail names what the operator can do.",
    )
    WITNESS_UNAVAILABLE = 503, "The database that notices a restored ledger does not answer. Nothing was charged."


class RefusalError(Exception):
    """A refusal, which the API, the command line and the dashboard explain alike; the message names the remedy.

    Attributes:
        kind: kind of problem.
        retry_after_s: seconds after which the same request may succeed; None: not known.
        hint: advice to users of the command line, beyond the message.
        members: further public members of the problem document.
    """

    kind: ClassVar[ProblemKind]
    retry_after_s: float | None = None
    hint: ClassVar[str] = ""
    members: Mapping[str, Any] = {}
