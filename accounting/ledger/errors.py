"""Errors of the ledger about budgets, plans and cohorts."""

from collections.abc import Iterable
from difflib import get_close_matches

from accounting.ledger.amounts import Pair, in_words


class LedgerError(Exception):
    """The ledger refuses a request; the message names the remedy."""


class UnknownBudgetError(LedgerError):
    """No budget was opened for this knowledge base."""


class BudgetExistsError(LedgerError):
    """The knowledge base has its lifetime budget already; it cannot be changed."""


class UnknownPlanError(LedgerError):
    """The knowledge base has no signed plan of this version."""


class PlanRetiredError(LedgerError):
    """The plan is retired: its tasks answer no more."""

    def __init__(self, knowledge_base: str, version: int) -> None:
        super().__init__(
            f"plan {version} of {knowledge_base!r} is retired, permanently: its tasks answer no more. Ask a task of "
            "another plan"
        )


class UnknownTaskError(LedgerError):
    """No signed plan has the task addressed."""


class PlansChangedError(LedgerError):
    """Another plan was signed since the signer looked."""


class SignedAlreadyError(LedgerError):
    """This very plan is signed, and the signer did not confirm that its budget is to be taken again.

    Attributes:
        version: version of the newest plan that is equal to it; the signer confirms by naming it.
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
    """The knowledge base is archived: permanently, it takes nothing new."""

    def __init__(self, knowledge_base: str) -> None:
        super().__init__(
            f"knowledge base {knowledge_base!r} is archived permanently: it no longer takes plans, cohorts or "
            "exemplars; create another"
        )


class NotEmptyError(LedgerError):
    """The knowledge base is not empty, so it cannot be deleted."""

    def __init__(self, knowledge_base: str, why: str) -> None:
        super().__init__(f"knowledge base {knowledge_base!r} cannot be deleted: {why}. Archive it instead")


class UnknownGroupError(LedgerError):
    """No group has this name."""


class GroupError(LedgerError):
    """The group exists already, the knowledge base is in a group, or the group has too little left for it."""


class BudgetExceededError(LedgerError):
    """A plan asks for more than is free.

    Args:
        knowledge_base: name of the knowledge base.
        asked: the plan's (ε, δ).
        promised: the (ε, δ) promised to signed plans.
        free: the (ε, δ) that is left.
        cohort: number of the cohort that has too little, in a knowledge base with several; None for its only one.
        group: name of the knowledge base's group, if that leaves less than the cohort alone would have.
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
    """The end of a message about an unknown name: the nearest of the known names, if one is near."""
    nearest = get_close_matches(name, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
