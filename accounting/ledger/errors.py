"""What the ledger refuses about budgets, plans and cohorts."""

from collections.abc import Iterable
from difflib import get_close_matches

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


class SignedAlreadyError(LedgerError):
    """This very plan is signed, and nobody said that its budget is to be taken again.

    Attributes:
        version: of the newest plan that is equal to it; naming it confirms.
    """

    def __init__(self, knowledge_base: str, version: int, asked: Pair) -> None:
        super().__init__(
            f"plan {version} of {knowledge_base!r} is this very plan, and is signed; nothing was taken. To take "
            f"{in_words(asked)} once more, confirm it: `dpicl plan sign FILE --again {version}`, or `?again={version}`"
        )
        self.version = version


class CohortError(LedgerError):
    """There is no such cohort, or it is closed, or cannot be closed yet."""


class KnowledgeBaseArchivedError(CohortError):
    """The knowledge base takes nothing new, for ever."""

    def __init__(self, knowledge_base: str) -> None:
        super().__init__(
            f"knowledge base {knowledge_base!r} is archived for ever: it takes no plan, cohort or exemplar any more; "
            "create another"
        )


class NotEmptyError(LedgerError):
    """The knowledge base is not empty, so it cannot be deleted."""

    def __init__(self, knowledge_base: str, why: str) -> None:
        super().__init__(f"knowledge base {knowledge_base!r} cannot be deleted: {why}. Archive it instead")


class UnknownGroupError(LedgerError):
    """No group has this name."""


class GroupError(LedgerError):
    """There is such a group, the knowledge base is in one, or the group has too little left for it."""


class BudgetExceededError(LedgerError):
    """A plan asks for more than is free.

    Args:
        knowledge_base: whose.
        asked: (ε, δ), as all three.
        promised: to signed plans.
        free: what is left.
        cohort: number of the one that has too little, in a knowledge base with several; None for its only one.
        group: the knowledge base's, if that has too little and the cohort would have enough.
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
        of = repr(knowledge_base) if cohort is None else f"cohort {cohort} of {knowledge_base!r}"
        otherwise = "" if cohort is None else ", or one that leaves this cohort out"
        if group is not None:
            rest = f"of the budget of group {group!r} only {in_words(free)} is left for {of}"
        else:
            signed = f"{in_words(promised)} is promised to signed plans"
            rest = f"of the lifetime budget of {of} {signed} and only {in_words(free)} is free"
        super().__init__(f"the plan asks for {in_words(asked)}, but {rest}; sign a smaller plan{otherwise}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """How a message ends that does not know a name: with the nearest one of those known, if one is near."""
    nearest = get_close_matches(name, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
