"""Which kind of problem each refusal is, for the API and the dashboard alike."""

from __future__ import annotations

from accounting.ledger.charges import AnswersExhaustedError, IdempotencyConflictError, UnknownReleaseError
from accounting.ledger.errors import (
    BudgetExceededError,
    BudgetExistsError,
    CohortError,
    GroupError,
    KnowledgeBaseArchivedError,
    PlansChangedError,
    UnknownBudgetError,
    UnknownGroupError,
    UnknownTaskError,
)
from accounting.ledger.history import UnknownCursorError
from accounting.ledger.quotas import QuotaExhaustedError
from accounting.ledger.witness import LedgerRestoredError, WitnessUnavailableError
from accounting.plan import PlanError
from accounting.privacy.accountants import AccountantsDisagreeError
from exemplar_store import (
    BadRowError,
    EncryptionKeyError,
    InvalidKnowledgeBaseError,
    KnowledgeBaseExistsError,
    OtherEmbeddingModelError,
    UnitTooLargeError,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
    UnrecognisedUnitsError,
)
from sanitization.text import TextError
from service.commands.command import UnconfirmedError
from service.commands.fields import FieldError
from service.embedding.sanitizers import EpsilonNotAttainableError, SanitizersUnavailableError
from service.engines.protocol import EngineUnavailableError
from service.pipeline.answering import BusyError, RemoteEngineForbiddenError, StillAnsweringError
from service.pipeline.latency import GrainTooSmallError
from service.pipeline.making import NotMadeError
from service.pipeline.queries import InvalidQueryError
from service.pipeline.restoring import BundleDiffersError, SteeringNotServedError, UnknownBundleError
from service.plans.proposals import SamePersonError, UnknownProposalError
from service.plans.signing import TwoPersonsError
from service.problem_kinds import ProblemKind
from service.records.api_keys import KeyRotatedError, UnknownKeyError
from service.records.roles import NotAllowedError, OutOfScopeError
from service.records.synthetic_store import SyntheticUploadError
from service.records.text_ledger import TextBudgetExhaustedError

KIND_OF: dict[type[Exception], ProblemKind] = {
    AnswersExhaustedError: ProblemKind.ANSWERS_EXHAUSTED,
    QuotaExhaustedError: ProblemKind.QUOTA_EXHAUSTED,
    BudgetExceededError: ProblemKind.BUDGET_EXCEEDED,
    RemoteEngineForbiddenError: ProblemKind.REMOTE_ENGINE_FORBIDDEN,
    UnknownTaskError: ProblemKind.UNKNOWN_TASK,
    UnknownBudgetError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    UnknownReleaseError: ProblemKind.UNKNOWN_RELEASE,
    UnknownKnowledgeBaseError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    SyntheticUploadError: ProblemKind.MADE_UP_DATA,
    UnknownUnitError: ProblemKind.UNKNOWN_UNIT,
    UnknownKeyError: ProblemKind.UNKNOWN_KEY,
    UnknownProposalError: ProblemKind.UNKNOWN_PROPOSAL,
    SamePersonError: ProblemKind.TWO_PERSONS,
    TwoPersonsError: ProblemKind.TWO_PERSONS,
    KeyRotatedError: ProblemKind.KEY_ROTATED,
    UnknownGroupError: ProblemKind.UNKNOWN_GROUP,
    GroupError: ProblemKind.GROUP_REFUSED,
    CohortError: ProblemKind.COHORT_REFUSED,
    KnowledgeBaseArchivedError: ProblemKind.KNOWLEDGE_BASE_ARCHIVED,
    UnrecognisedUnitsError: ProblemKind.COHORT_REFUSED,
    KnowledgeBaseExistsError: ProblemKind.KNOWLEDGE_BASE_EXISTS,
    BudgetExistsError: ProblemKind.KNOWLEDGE_BASE_EXISTS,
    InvalidKnowledgeBaseError: ProblemKind.INVALID_KNOWLEDGE_BASE,
    IdempotencyConflictError: ProblemKind.IDEMPOTENCY_CONFLICT,
    InvalidQueryError: ProblemKind.INVALID_QUERY,
    BadRowError: ProblemKind.BAD_ROW,
    UnitTooLargeError: ProblemKind.UNIT_TOO_LARGE,
    UnknownCursorError: ProblemKind.UNKNOWN_CURSOR,
    PlanError: ProblemKind.INVALID_PLAN,
    PlansChangedError: ProblemKind.PLANS_CHANGED,
    AccountantsDisagreeError: ProblemKind.ACCOUNTANTS_DISAGREE,
    LedgerRestoredError: ProblemKind.LEDGER_RESTORED,
    NotMadeError: ProblemKind.RELEASE_NOT_MADE,
    GrainTooSmallError: ProblemKind.LATENCY_GRAIN_TOO_SMALL,
    EncryptionKeyError: ProblemKind.WRONG_ENCRYPTION_KEY,
    OtherEmbeddingModelError: ProblemKind.OTHER_EMBEDDING_MODEL,
    EngineUnavailableError: ProblemKind.ENGINE_UNAVAILABLE,
    WitnessUnavailableError: ProblemKind.WITNESS_UNAVAILABLE,
    StillAnsweringError: ProblemKind.STILL_ANSWERING,
    BusyError: ProblemKind.BUSY,
    SanitizersUnavailableError: ProblemKind.SANITIZER_UNAVAILABLE,
    EpsilonNotAttainableError: ProblemKind.EPSILON_NOT_ATTAINABLE,
    TextBudgetExhaustedError: ProblemKind.TEXT_BUDGET_EXHAUSTED,
    TextError: ProblemKind.INVALID_REQUEST,
    FieldError: ProblemKind.INVALID_REQUEST,
    NotAllowedError: ProblemKind.WRONG_ROLE,
    OutOfScopeError: ProblemKind.OUT_OF_SCOPE,
    UnconfirmedError: ProblemKind.UNCONFIRMED,
    UnknownBundleError: ProblemKind.UNKNOWN_BUNDLE,
    BundleDiffersError: ProblemKind.BUNDLE_DIFFERS,
    SteeringNotServedError: ProblemKind.STEERING_NOT_SERVED,
}

REFUSALS = tuple(KIND_OF)
"""What a page that shows a form again catches."""
