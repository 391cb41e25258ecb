"""Alternatives at a task's share of a plan's budget: more answers or fewer, or by another mechanism."""

from collections.abc import Iterator

from accounting.plans.plan import Plan, PlanError
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.mechanisms.adapter import ADAPTERS, AnswerAdapter, OnceLabelAdapter
from service.answering.plans.calibrating import least_noise
from service.answering.plans.preview import TaskPreview, describe

_TIMES = 10
_MOST_ANSWERS = 100_000_000

Alternatives = dict[str, list[TaskPreview]]
"""Previews by task; as planned first."""


def alternatives(plan: Plan, public_size: int) -> Alternatives:
    """The preview of each task as planned and otherwise, with its share of the plan's (ε, δ) to itself.

    So a plan of several tasks does somewhat better than these figures. What cannot be calibrated is left out.
    Takes about half a second for each.
    """
    # There are none of a one-time release: the plan does not name a number of slots to draw instead.
    others = {name: _others(task) for name, task in plan.each.items()}
    return {
        name: [seen for other in (task, *others.get(name, ())) if (seen := _alone(plan, name, other, public_size))]
        for name, task in plan.tasks.items()
    }


def _others(task: ClassifyTask | GenerateTask) -> Iterator[ClassifyTask | GenerateTask]:
    for answers in (task.answers // _TIMES, task.answers * _TIMES):
        if 1 <= answers <= _MOST_ANSWERS:
            yield task.model_copy(update={"answers": answers})
    for adapter in ADAPTERS.values():
        if adapter.schema.kind != task.kind or adapter.schema is type(task.mechanism):
            continue
        if issubclass(adapter, AnswerAdapter | OnceLabelAdapter):  # others take more than another mechanism
            yield task.by(adapter.example)


def _alone(plan: Plan, name: str, task: ClassifyTask | GenerateTask, public_size: int) -> TaskPreview | None:
    task, share = task.alone(), task.share / sum(planned.share for planned in plan.tasks.values())
    budget = plan.budget.model_copy(update={key: value * share for key, value in plan.budget})
    try:
        noise = least_noise(plan.model_copy(update={"budget": budget, "tasks": {name: task}}), public_size)
    except PlanError:
        return None
    return describe(task, noise[name], public_size)
