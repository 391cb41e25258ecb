"""Candidates for ``synthetic_exemplars``, written by the engine from the plan alone: no private exemplar is read.

Written anew, or as variations of given texts. Variations of the exemplars that a signed task has chosen are candidates
for the next plan, so that round after round comes nearer to the private exemplars, and each is paid for by a plan of
its own (private evolution: Xie et al. 2024, arXiv 2403.01749).
"""

from collections.abc import Mapping, Sequence

from accounting.plans.tasks import ClassifyTask
from service.engines.errors import UnusableReplyError
from service.engines.protocol import Engine
from service.engines.task import Prompt, SanitizedQuery, TaskSpec


async def write_candidates(
    engine: Engine, name: str, task: ClassifyTask, per_label: int, varied: Sequence[Mapping[str, str]] = ()
) -> list[dict[str, str]]:
    """Ask a language model for candidates, for one label or text after the other.

    Args:
        engine: engine that runs a language model.
        name: name of the task, for messages.
        task: labels, descriptions and instruction for the model's prompts.
        per_label: number of texts for each label at most, or for each text that is varied.
        varied: public exemplars to vary; empty: write anew.

    Returns:
        Exemplars with the fields that the task's prompt shows, no text twice.

    Raises:
        ValueError: the prompt shows other fields than a label and a text; a text to vary has not these fields, or a
            label that the task has not; or the model wrote nothing of some label.
        service.engines.errors.EngineUnavailableError: the engine does not answer.
        service.engines.errors.UnusableReplyError: it replies with no text for some label.
    """
    others = sorted(set(task.exemplar_fields) - {task.label_field})
    if len(others) != 1:
        raise ValueError(
            f"{name}: the prompt shows {', '.join(others)}, and an engine writes one text; write candidates"
        )
    (field,) = others
    for example in varied:
        if field not in example or example.get(task.label_field) not in task.labels:
            raise ValueError(f"to vary a text, give its {field!r} and its {task.label_field!r}, a label of the task")
    seeds = [(example[task.label_field], example[field]) for example in varied] or [
        (label, "") for label in task.labels
    ]
    prompt = Prompt(task.prompt.instruction, "", "{asked}")
    spec = TaskSpec(name, (), prompt, field, field, kind="generate", candidates=per_label)

    candidates = []
    for label, text in seeds:
        asked = SanitizedQuery(asked=_asked(task, field, label, text))  # it may leave: all of it is public
        try:
            written = (await engine.zero_shot(spec, asked)).texts
        except UnusableReplyError as error:
            raise UnusableReplyError(f"the engine wrote nothing for {label}: {error}") from error
        candidates += [{field: " ".join(draft.split()), task.label_field: label} for draft in written]
    known = {example[field] for example in varied}
    unique = {
        candidate[field]: candidate for candidate in candidates if candidate[field] and candidate[field] not in known
    }
    missing = [
        label for label in task.labels if all(candidate[task.label_field] != label for candidate in unique.values())
    ]
    if missing:
        raise ValueError(f"the engine wrote nothing for {', '.join(missing)}")
    return list(unique.values())


def _asked(task: ClassifyTask, field: str, label: str, text: str) -> str:
    """A prompt for a label, ending as an exemplar does where its text begins."""
    lines = [f"Write one new example of what belongs under “{label}”, and nothing else."]
    if about := task.label_descriptions.get(label):
        lines.append(about)
    if text:
        lines.append(f"Vary this one: other facts, other words, about as long.\n\n{text}")
    cue = task.prompt.exemplar.partition(f"{{{field}}}")[0].rpartition("\n")[2]
    return "\n".join([*lines, "", cue.format_map({task.label_field: label}).rstrip() or "Example:"])
