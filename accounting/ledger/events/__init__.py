"""Audit events: each kind with its name in the trail, its particulars, its words, and the rule that a replay checks.

All code that appends events, reads, replays or shows them uses these definitions. A trail outlives the version that
wrote it: a kind keeps its name and its fields forever, and a field that it gains has a default.
"""

# In the order in which people choose from them.
from accounting.ledger.events.budgets import (
    Approval,
    BudgetOpened,
    CohortClosed,
    CohortOpened,
    GroupJoined,
    GroupOpened,
    KnowledgeBaseArchived,
    KnowledgeBaseDeleted,
    PlanRetired,
    PlanSigned,
)
from accounting.ledger.events.answers import (
    AccuracyRecorded,
    AnswerCharged,
    AnswerReleased,
    ChargeLost,
    ChargeVoided,
    QueryRefused,
)
from accounting.ledger.events.keys import (
    KeyChanged,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    KeySignedIn,
    KeySignedOut,
    PersonSignedIn,
    PersonSignedOut,
)
from accounting.ledger.events.exemplars import ExemplarsIngested, RemoteEngineChanged, UnitForgotten, UploadEnded
from accounting.ledger.events.deployment import (
    BundlePublished,
    EncryptionKeyChanged,
    ExemplarsReencrypted,
    LedgerRestored,
    Mark,
)
from accounting.ledger.events.particulars import KINDS, Names, Particulars, read
