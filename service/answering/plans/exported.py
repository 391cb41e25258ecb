"""Exemplars of a release as a file, and a certificate to check their origin against the audit trail.

The trail has the plan with its candidates, its (ε, δ) and its noise, and the hash of what was released; the certificate
has the noisy votes that were released, so that the choice can be made again, or the texts.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from accounting.ledger.budgets import address
from accounting.ledger.events import AnswerReleased, PlanSigned, read
from accounting.ledger.trail import canonical
from accounting.plans.plan import CalibratedPlan
from service.answering.mechanisms.adapter import once_adapter_of
from service.answering.once.making import ONE_RELEASE, NotMadeError
from service.records.records import Records
from service.records.signed import read_signed


class Certificate(BaseModel):
    """The origin of exemplars.

    Attributes:
        task: the address of the task that chose them.
        plan_sha256: SHA-256 of the plan's document.
        epsilon: ε of the whole plan, the choice included.
        delta: likewise.
        release: the id of what was released.
        answer: the released noisy votes, or texts.
        exemplars_sha256: SHA-256 of the file with the exemplars.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    task: str
    plan_sha256: str
    epsilon: float
    delta: float
    release: str
    answer: dict[str, str | dict[str, float] | dict[str, list[str]]]
    exemplars_sha256: str


def certificate_of(file: Path) -> Path:
    """The path of a file's certificate."""
    return file.with_name(f"{file.name}.certificate.json")


def export(records: Records, task: str) -> tuple[bytes, Certificate]:
    """The exemplars that a task's one release gives, as lines of JSON, with their certificate.

    Raises:
        accounting.ledger.errors.UnknownTaskError: there is no such task.
        service.answering.once.making.NotMadeError: the task's release is not there.
        ValueError: the release gives no exemplars.
    """
    signed = records.ledger.budgets.task(task, even_retired=True)
    plan = read_signed(signed.document)
    if not plan.plan.tasks[signed.name].once:
        raise ValueError(f"{signed.address} releases each answer by itself, and gives no exemplars")
    stored = records.ledger.stored_release(signed, ONE_RELEASE)
    if stored is None:
        raise NotMadeError(f"the one release of {signed.address} is not there")
    lines = _chosen(plan, signed.name, stored.answer)
    budget = plan.plan.budget
    return lines, Certificate(
        task=signed.address,
        plan_sha256=_sha256(signed.document.encode()),
        epsilon=budget.epsilon,
        delta=budget.delta,
        release=stored.id,
        answer=stored.answer,
        exemplars_sha256=_sha256(lines),
    )


def problems(file: Path, trail: Iterable[str]) -> list[str]:
    """The faults of exported exemplars, in words; an empty list when there are none.

    Args:
        file: file from :func:`export`, with its certificate beside it.
        trail: an export of the audit trail in which nothing is wrong (:func:`accounting.replay.trail.verify`).
    """
    try:
        lines, certificate = file.read_bytes(), Certificate.model_validate_json(certificate_of(file).read_bytes())
    except (OSError, ValidationError) as error:
        return [f"{file} and its certificate cannot be read ({type(error).__name__})"]
    document, name, left = None, "", None
    for line in filter(str.strip, trail):
        event = json.loads(line)
        match read(event["kind"], canonical(event["body"])) if "kind" in event else None:
            case PlanSigned() as signed:
                for task in signed.answers:
                    if address(signed.knowledge_base, task, signed.version) == certificate.task:
                        document, name = signed.document, task
            case AnswerReleased() as released if released.release == certificate.release:
                left = released
    if document is None:
        return [f"no signed plan has the task {certificate.task}"]
    plan = read_signed(document)
    budget = plan.plan.budget
    wrong = []
    if certificate.plan_sha256 != _sha256(document.encode()):
        wrong.append("the plan is not the one that was signed")
    if (certificate.epsilon, certificate.delta) != (budget.epsilon, budget.delta):
        wrong.append(f"the plan costs ε = {budget.epsilon:g}, δ = {budget.delta:g}")
    answer = _sha256(canonical(certificate.answer).encode())
    if left is None or (left.task, left.answer_sha256) != (certificate.task, answer):
        return [*wrong, "the votes or texts are not what was released"]
    if certificate.exemplars_sha256 != _sha256(lines) or lines != _chosen(plan, name, certificate.answer):
        wrong.append("the exemplars are not those of the release")
    return wrong


def _chosen(plan: CalibratedPlan, task: str, answer: Mapping[str, Any]) -> bytes:
    """The exemplars of a task's release, as lines of JSON.

    Raises:
        ValueError: it gives no exemplars.
        TypeError: the task's answers are released each by itself.
    """
    rows = once_adapter_of(plan.plan.tasks[task], plan.noise[task]).chosen(answer)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
