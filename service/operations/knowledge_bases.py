"""Knowledge bases: created with a lifetime budget, listed, changed, archived, and deleted while they are empty."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field, model_validator

from accounting.ledger.amounts import checked, in_words
from accounting.ledger.budgets import BudgetStatus
from exemplar_store import LEAST_EXEMPLAR_BYTES, MAX_EXEMPLAR_BYTES, KnowledgeBase, default_response_field
from service.operations.budgets import Delta, Epsilon, PublicSize, weaknesses
from service.operations.command import Confirmation, check_confirmed, command
from service.operations.fields import Name, inputs
from service.operations.roles import Actor, Right
from service.records.records import Records

_REMOTE_ENGINE = (
    "Whether exemplars may be shown, in clear text, to a language model outside the deployment. The budget does not "
    "protect them from that model's provider."
)


class NewKnowledgeBase(BaseModel):
    """A knowledge base to create."""

    model_config = inputs(name="tickets", epsilon=8, delta=1e-4, public_size=600)
    name: Name
    epsilon: Epsilon
    delta: Delta
    public_size: PublicSize
    fields: list[str] = Field(default=["text", "label"], description="An exemplar's fields.")
    embedded_field: str | None = Field(
        default=None, description="Field by which exemplars and queries are compared. Left out: the first."
    )
    response_field: str | None = Field(
        default=None,
        description="Field that answers in words are taken from. It is embedded at ingest, too: ingest takes twice as "
        "long, and such answers of `nearest_exemplar` a fraction of the time. Left out: `response`, if that is a field "
        "beside the embedded one. Null or empty: none.",
    )
    max_exemplar_bytes: int = Field(
        default=MAX_EXEMPLAR_BYTES,
        ge=LEAST_EXEMPLAR_BYTES,
        le=MAX_EXEMPLAR_BYTES,
        description="The most bytes that an exemplar's texts may have together; longer rows are refused. Every answer "
        "takes as long as with exemplars of this size, so a smaller one makes answers faster. It cannot be changed.",
    )
    remote_engine: bool = Field(default=False, description=_REMOTE_ENGINE)

    @model_validator(mode="after")
    def _default_fields(self) -> Self:
        if self.embedded_field is None and self.fields:
            self.embedded_field = self.fields[0]
        if "response_field" in self.model_fields_set:
            self.response_field = self.response_field or None
        else:
            self.response_field = default_response_field(self.fields, self.embedded_field or "")
        return self


class KnowledgeBaseChange(BaseModel):
    """A change of a knowledge base."""

    model_config = inputs(remote_engine=True)
    remote_engine: bool = Field(description=_REMOTE_ENGINE)


class KnowledgeBaseView(BaseModel):
    """The public facts of a knowledge base."""

    name: str
    public_size: int
    fields: list[str]
    embedded_field: str
    response_field: str | None = Field(description="Field that text answers are taken from; null: none.")
    max_exemplar_bytes: int = Field(description="The most bytes that an exemplar may have.")
    remote_engine: bool
    created_at: datetime
    archived_at: datetime | None = Field(description="Time since which it takes nothing new; null: it does.")

    @classmethod
    def of(cls, described: KnowledgeBase, status: BudgetStatus) -> KnowledgeBaseView:
        """A knowledge base as it may be shown."""
        shown = {name: getattr(described, name) for name in cls.model_fields if name != "archived_at"}
        return cls(**shown, archived_at=status.archived_at)


@command(Right.DECIDE)
def create(
    actor: Actor, records: Records, wanted: NewKnowledgeBase, confirmed: Collection[str] = ()
) -> KnowledgeBaseView:
    """Create a knowledge base. Its lifetime budget is a promise to the people in the data and cannot be changed.

    Raises:
        UnconfirmedError: the lifetime budget is a weak promise, or the actor did not confirm the figures.
        exemplar_store.InvalidKnowledgeBaseError: the description is invalid.
        exemplar_store.KnowledgeBaseExistsError: a knowledge base with this name exists.
        accounting.ledger.errors.BudgetExistsError: a knowledge base with this name had another budget.
        accounting.ledger.errors.KnowledgeBaseArchivedError: a knowledge base with this name was archived.
    """
    weak = weaknesses(wanted.epsilon, wanted.delta, wanted.public_size)
    check_confirmed(Confirmation.WEAK_PROMISE, weak, confirmed)
    budget = in_words(checked(wanted.epsilon, wanted.delta))
    figures = [
        f"{wanted.name} gets the lifetime budget {budget} for all its plans together, and the public size "
        f"{wanted.public_size}. Neither can ever be changed.",
        f"Its exemplars have the fields {', '.join(wanted.fields)}. No field can be added later.",
    ]
    check_confirmed(Confirmation.PERMANENT, figures, confirmed)
    records.create_knowledge_base(**wanted.model_dump(), by=actor.id)
    return describe(actor, records, wanted.name)


@command(Right.SEE)
def list_(actor: Actor, records: Records) -> builtins.list[KnowledgeBaseView]:
    """The public facts of the knowledge bases in the actor's scope, by name."""
    described = [base for base in records.store.list() if actor.sees(base.name)]
    status = {status.knowledge_base: status for status in records.ledger.budgets.statuses()}
    return [KnowledgeBaseView.of(base, status[base.name]) for base in described]


@command(Right.SEE)
def describe(actor: Actor, records: Records, name: str) -> KnowledgeBaseView:
    """The public facts of a knowledge base.

    Raises:
        service.operations.roles.OutOfScopeError: it is not in the actor's scope.
    """
    actor.require_knowledge_base(name)
    return KnowledgeBaseView.of(records.store.get(name), records.ledger.budgets.status(name))


@command(Right.DECIDE)
def change(actor: Actor, records: Records, name: str, wanted: KnowledgeBaseChange) -> KnowledgeBaseView:
    """Allow or forbid a remote engine from the next query on. Exemplars that it saw before cannot be taken back."""
    records.allow_remote_engine(name, wanted.remote_engine, by=actor.id)
    return describe(actor, records, name)


@command(Right.DECIDE)
def archive(actor: Actor, records: Records, name: str, confirmed: Collection[str] = ()) -> KnowledgeBaseView:
    """Take no further plan, cohort or exemplar, permanently. Units can still be forgotten.

    Raises:
        UnconfirmedError: the actor did not confirm it.
        accounting.ledger.errors.KnowledgeBaseArchivedError: it is archived already.
    """
    records.store.get(name)
    doubt = f"{name} will take no further plan, cohort or exemplar, permanently. Signed plans go on."
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    records.ledger.cohorts.archive(name, by=actor.id)
    return describe(actor, records, name)


@command(Right.DECIDE)
def delete(actor: Actor, records: Records, name: str) -> None:
    """Delete an empty knowledge base: no plan was ever signed, and no exemplar uploaded. Its name becomes free.

    Raises:
        exemplar_store.KnowledgeBaseNotEmptyError: it has, or had, exemplars.
        accounting.ledger.errors.NotEmptyError: it has a plan or a group, or an upload to it was begun.
    """
    records.delete_knowledge_base(name, by=actor.id)
