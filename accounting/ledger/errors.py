"""What the ledger refuses about budgets, plans and cohorts."""

from accounting.ledger.amounts import Pair, in_words


class LedgerError(Exception):
    """What the ledger refuses; the message says what to do."""


class UnknownBudgetError(LedgerError):
    """No budget was opened for this knowledge base."""


class BudgetExistsError(LedgerError):
    """The knowledge base has its lifetime budget already; it cannot be changed."""


class UnknownPlanError(LedgerError):
    """The knowledge base has no signed plan of this version."""


class UnknownTaskError(LedgerError):
    """No signed plan has the task addressed."""


class PlansChangedError(LedgerError):
    """Another plan was signed since the signer looked."""


class CohortError(LedgerError):
    """There is no such cohort, or it is closed, or cannot be closed yet."""


class KnowledgeBaseArchivedError(CohortError):
    """The knowledge base takes nothing new, for ever."""

    def __init__(self, knowledge_base: str) -> None:
        super().__init__(
            f"knowledge base {knowledge_base!r} is archived for ever: it takes no plan, cohort or exemplar any more; "
            "create another"
        )


class UnknownGroupError(LedgerError):
    """No group has this name."""


class GroupError(LedgerError):
    """There is such a group, the knowledge base is in one, or the group has too little left for it."""


class BudgetExceededError(LedgerError):
    """A plan asks for more than is free. ``asked``, ``promised`` and ``free`` are pairs (ε, δ).

    ``cohort`` is the number of the one that has too little, in a knowledge base with several; None for its only one.
    ``group`` is the knowledge base's group, if that has too little and the cohort would have enough.
    """

    def __init__(
        self,
        knowledge_base: str,
        asked: Pair,
        promised: Pair,
        free: Pair,
        cohort: int | None = None,
        group: str | None = None,
    ) -> None:
        self.knowledge_base, self.asked, self.promised, self.free = knowledge_base, asked, promised, free
        self.cohort, self.group = cohort, group
        of = repr(knowledge_base) if cohort is None else f"cohort {cohort} of {knowledge_base!r}"
        otherwise = "" if cohort is None else ", or one that leaves this cohort out"
        if group is not None:
            super().__init__(
                f"the plan asks for {in_words(asked)}, but of the budget of group {group!r} only {in_words(free)} is "
                f"left for {of}; sign a smaller plan{otherwise}"
            )
            return
        super().__init__(
            f"the plan asks for {in_words(asked)}, but of the lifetime budget of {of} {in_words(promised)} is "
            f"promised to signed plans and only {in_words(free)} is free; sign a smaller plan{otherwise}"
        )
