"""Which kind of problem each refusal is, for the API and the dashboard alike."""

import exemplar_store
from accounting.ledger import charges, errors, history, quotas, witness
from accounting.plans import plan
from accounting.privacy import accountants
from sanitization import text
from service.answering import answering, latency, queries, restoring
from service.answering.once import making
from service.engines import protocol
from service.engines.embedding import sanitizers
from service.operations import command, fields
from service.problem_kinds import ProblemKind
from service.records import api_keys, requests_once, roles, synthetic_store, text_ledger

KIND_OF: dict[type[Exception], ProblemKind] = {
    charges.AnswersExhaustedError: ProblemKind.ANSWERS_EXHAUSTED,
    quotas.QuotaExhaustedError: ProblemKind.QUOTA_EXHAUSTED,
    errors.BudgetExceededError: ProblemKind.BUDGET_EXCEEDED,
    answering.RemoteEngineForbiddenError: ProblemKind.REMOTE_ENGINE_FORBIDDEN,
    errors.UnknownTaskError: ProblemKind.UNKNOWN_TASK,
    errors.UnknownBudgetError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    charges.UnknownReleaseError: ProblemKind.UNKNOWN_RELEASE,
    exemplar_store.UnknownKnowledgeBaseError: ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    synthetic_store.SyntheticUploadError: ProblemKind.MADE_UP_DATA,
    exemplar_store.UnknownUnitError: ProblemKind.UNKNOWN_UNIT,
    exemplar_store.InvalidUnitIdError: ProblemKind.INVALID_REQUEST,
    api_keys.UnknownKeyError: ProblemKind.UNKNOWN_KEY,
    api_keys.KeyRotatedError: ProblemKind.KEY_ROTATED,
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
    requests_once.InProgressError: ProblemKind.REQUEST_IN_PROGRESS,
    requests_once.DoneBeforeError: ProblemKind.DONE_BEFORE,
    queries.InvalidQueryError: ProblemKind.INVALID_QUERY,
    exemplar_store.BadRowError: ProblemKind.BAD_ROW,
    exemplar_store.UnitTooLargeError: ProblemKind.UNIT_TOO_LARGE,
    history.UnknownCursorError: ProblemKind.UNKNOWN_CURSOR,
    plan.PlanError: ProblemKind.INVALID_PLAN,
    errors.PlansChangedError: ProblemKind.PLANS_CHANGED,
    errors.SignedAlreadyError: ProblemKind.PLAN_SIGNED_ALREADY,
    accountants.AccountantsDisagreeError: ProblemKind.ACCOUNTANTS_DISAGREE,
    witness.LedgerRestoredError: ProblemKind.LEDGER_RESTORED,
    making.NotMadeError: ProblemKind.RELEASE_NOT_MADE,
    latency.GrainTooSmallError: ProblemKind.LATENCY_GRAIN_TOO_SMALL,
    exemplar_store.EncryptionKeyError: ProblemKind.WRONG_ENCRYPTION_KEY,
    exemplar_store.OtherEmbeddingModelError: ProblemKind.OTHER_EMBEDDING_MODEL,
    protocol.EngineUnavailableError: ProblemKind.ENGINE_UNAVAILABLE,
    protocol.UnusableReplyError: ProblemKind.UNUSABLE_REPLY,
    witness.WitnessUnavailableError: ProblemKind.WITNESS_UNAVAILABLE,
    answering.StillAnsweringError: ProblemKind.STILL_ANSWERING,
    answering.BusyError: ProblemKind.BUSY,
    sanitizers.SanitizersUnavailableError: ProblemKind.SANITIZER_UNAVAILABLE,
    sanitizers.EpsilonNotAttainableError: ProblemKind.EPSILON_NOT_ATTAINABLE,
    text_ledger.TextBudgetExhaustedError: ProblemKind.TEXT_BUDGET_EXHAUSTED,
    text.TextError: ProblemKind.INVALID_REQUEST,
    fields.FieldError: ProblemKind.INVALID_REQUEST,
    roles.NotAllowedError: ProblemKind.WRONG_ROLE,
    roles.OutOfScopeError: ProblemKind.OUT_OF_SCOPE,
    command.UnconfirmedError: ProblemKind.UNCONFIRMED,
    restoring.UnknownBundleError: ProblemKind.UNKNOWN_BUNDLE,
    restoring.BundleDiffersError: ProblemKind.BUNDLE_DIFFERS,
    restoring.SteeringNotServedError: ProblemKind.STEERING_NOT_SERVED,
}

REFUSALS = tuple(KIND_OF)
"""What a page that shows a form again catches."""
