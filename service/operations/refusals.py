"""The kind of problem of each refusal, for the API and the dashboard alike.

The service's own errors name their kind themselves. The errors of the packages below, which know nothing of problems,
and of the database, are listed here with their kinds.
"""

from collections.abc import Mapping
from typing import Any

import exemplar_store
from accounting.ledger import charges, checkpoints, errors, history, quotas, witness
from accounting.plans import plan
from accounting.privacy import accountants
from sanitization import text
from service.answering import restoring
from service.problem_kinds import ProblemKind, RefusalError
from service.records.database import UNAVAILABLE

_OF_PACKAGES: dict[type[Exception], ProblemKind] = {
    charges.AnswersExhaustedError: ProblemKind.ANSWERS_EXHAUSTED,
    quotas.QuotaExhaustedError: ProblemKind.QUOTA_EXHAUSTED,
    errors.BudgetExceededError: ProblemKind.BUDGET_EXCEEDED,
    errors.PlanRetiredError: ProblemKind.PLAN_RETIRED,
    errors.UnknownPlanError: ProblemKind.UNKNOWN_PLAN,
    errors.UnknownTaskError: ProblemKind.UNKNOWN_TASK,
    errors.UnknownBudgetError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    charges.UnknownReleaseError: ProblemKind.UNKNOWN_RELEASE,
    exemplar_store.UnknownKnowledgeBaseError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    exemplar_store.UnknownUnitError: ProblemKind.UNKNOWN_UNIT,
    exemplar_store.InvalidUnitIdError: ProblemKind.INVALID_REQUEST,
    errors.UnknownGroupError: ProblemKind.UNKNOWN_GROUP,
    errors.GroupError: ProblemKind.GROUP_REFUSED,
    errors.CohortError: ProblemKind.COHORT_REFUSED,
    errors.KnowledgeBaseArchivedError: ProblemKind.KNOWLEDGE_BASE_ARCHIVED,
    exemplar_store.UnrecognisedUnitsError: ProblemKind.COHORT_REFUSED,
    exemplar_store.KnowledgeBaseExistsError: ProblemKind.KNOWLEDGE_BASE_EXISTS,
    errors.BudgetExistsError: ProblemKind.KNOWLEDGE_BASE_EXISTS,
    exemplar_store.KnowledgeBaseNotEmptyError: ProblemKind.KNOWLEDGE_BASE_NOT_EMPTY,
    errors.NotEmptyError: ProblemKind.KNOWLEDGE_BASE_NOT_EMPTY,
    exemplar_store.InvalidKnowledgeBaseError: ProblemKind.INVALID_KNOWLEDGE_BASE,
    charges.IdempotencyConflictError: ProblemKind.IDEMPOTENCY_CONFLICT,
    exemplar_store.BadRowError: ProblemKind.BAD_ROW,
    exemplar_store.UnitTooLargeError: ProblemKind.UNIT_TOO_LARGE,
    history.UnknownCursorError: ProblemKind.UNKNOWN_CURSOR,
    plan.PlanError: ProblemKind.INVALID_PLAN,
    errors.PlansChangedError: ProblemKind.PLANS_CHANGED,
    errors.SignedAlreadyError: ProblemKind.PLAN_SIGNED_ALREADY,
    accountants.AccountantsDisagreeError: ProblemKind.ACCOUNTANTS_DISAGREE,
    checkpoints.CheckpointError: ProblemKind.TRAIL_NOT_SIGNED,
    witness.LedgerRestoredError: ProblemKind.LEDGER_RESTORED,
    exemplar_store.EncryptionKeyError: ProblemKind.WRONG_ENCRYPTION_KEY,
    exemplar_store.OtherEmbeddingModelError: ProblemKind.OTHER_EMBEDDING_MODEL,
    witness.WitnessUnavailableError: ProblemKind.WITNESS_UNAVAILABLE,
    text.TextError: ProblemKind.INVALID_REQUEST,
}

REFUSALS: tuple[type[Exception], ...] = (RefusalError, *_OF_PACKAGES)
"""Errors that a face explains in their own words."""

OUTAGES: tuple[type[Exception], ...] = UNAVAILABLE
"""Errors that a face logs, and explains in words of its own: the database's words may quote private data."""

NOT_THERE: tuple[type[Exception], ...] = (
    errors.UnknownPlanError,
    history.UnknownCursorError,
    restoring.UnknownBundleError,
)
"""Errors of pages whose own address names something that does not exist."""

_KINDS = {**_OF_PACKAGES, **dict.fromkeys(OUTAGES, ProblemKind.DATABASE_UNAVAILABLE)}


def kind_of(error: Exception) -> ProblemKind:
    """The kind of problem of an error: an internal error, unless it is one of :data:`REFUSALS` or :data:`OUTAGES`."""
    if isinstance(error, RefusalError):
        return error.kind
    return next((_KINDS[one] for one in type(error).__mro__ if one in _KINDS), ProblemKind.INTERNAL_ERROR)


def members_of(error: Exception) -> Mapping[str, Any]:
    """The further public members of one of :data:`REFUSALS`, by which programs can act."""
    match error:
        case RefusalError():
            return error.members
        case plan.PlanError():
            return {"problems": [str(problem) for problem in error.problems]}
        case errors.SignedAlreadyError():
            return {"again": error.version}
    return {}
