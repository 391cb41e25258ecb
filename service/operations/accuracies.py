"""Recorded accuracies of tasks, measured on public rows by `dpicl eval`: whether exemplars are worth their budget."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from accounting.ledger.budgets import SignedTask
from accounting.ledger.events import AccuracyRecorded
from accounting.ledger.trail import every
from service.operations.command import command
from service.operations.roles import Actor, Right
from service.records.engine_record import last_engine
from service.records.records import Records, audited


class Recorded(NamedTuple):
    """An accuracy, and the time at which it was recorded, in UTC."""

    accuracy: AccuracyRecorded
    at: datetime


@command(Right.DECIDE)
def record(
    actor: Actor,
    records: Records,
    task: SignedTask,
    *,
    accuracy: float,
    standard_error: float,
    zero_shot: float,
    zero_shot_error: float,
    rows: int,
    engine: str,
) -> AccuracyRecorded:
    """Record an accuracy, for everyone who may open the dashboard. It is charged to no budget.

    By recording it the actor declares that the rows behind it, training and test, are public. They are not compared
    with the knowledge base, since the result would disclose whether it has them.

    Args:
        actor: the admin.
        records: opened records.
        task: the task, with all its topics.
        accuracy: share of right answers, in percent.
        standard_error: standard error of the accuracy, in points.
        zero_shot: share of right answers without private exemplars, in percent.
        zero_shot_error: standard error of that, in points.
        rows: number of test rows.
        engine: name of the engine that answered.

    Raises:
        ValueError: another engine answers in the service.
    """
    check_engine(records, engine)
    recorded = AccuracyRecorded(
        task=task.address,
        accuracy=round(accuracy, 1),
        standard_error=round(standard_error, 1),
        zero_shot=round(zero_shot, 1),
        zero_shot_error=round(zero_shot_error, 1),
        rows=rows,
        engine=engine,
        by=actor.id,
    )
    with records.database.begin() as connection:
        audited(recorded)(connection)
    return recorded


def check_engine(records: Records, engine: str) -> None:
    """Check that an engine has the name of the one that serves, or served last.

    Raises:
        ValueError: it has another.
    """
    serving = last_engine(records.database)
    if serving is not None and serving.name != engine:
        raise ValueError(f"{serving.name} answers in the service, not {engine}: name its config with --engine-config")


def newest(records: Records) -> Mapping[str, Recorded]:
    """The accuracy recorded last for each task, by its address with a version, without its topic."""
    found = {}
    for event in every(lambda **pages: records.audit.events(kinds=[AccuracyRecorded.kind], **pages)):
        if isinstance(happened := event.particulars, AccuracyRecorded):
            found[happened.task] = Recorded(happened, event.at)
    return found
