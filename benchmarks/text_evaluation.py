"""Tables, plots and ablations of free text, as in DP-ICL's tables 3 and 4 and figures 5 and 10 to 13.

    python benchmarks/text_evaluation.py samsum FOLDER OUT    # or sroie; benchmarks/evaluation/prepare.py makes FOLDER
    python benchmarks/text_evaluation.py --quick              # a few made-up tickets, which show only that it runs

Every test row is asked once; all tables come from these answers. ``--cache FILE`` keeps them (a pickle: open your own
only), so that a second run asks nothing again.

Written to OUT: ``NAME.csv`` and ``NAME.png``, as ``dpicl eval`` writes them; and at ε = 3 ``NAME-ablations.csv`` and
``NAME-ablations.png``, for ensembles and knowledge bases of other sizes and other numbers of answers and candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from accounting.mechanisms import EmbeddingMeanMechanism, KeywordJointEmMechanism, KeywordPtrMechanism, TextMechanism
from accounting.plan import Plan, load_plan
from accounting.tasks import GenerateTask
from service.embedding.embedder import Embedder
from service.embedding.memory import EmbeddingMemory
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.evaluation import dataset as data
from service.evaluation.evaluator import noise_of
from service.evaluation.tables import Grid, write_csv
from service.evaluation.texts import Texts, TextScores, evaluate, measure, plot

ABLATION_EPSILON = 3.0
TICKETS = Path(__file__).parents[1] / "examples" / "support" / "tickets.jsonl"


@dataclass(frozen=True)
class Extent:
    """What is varied, and how often noise is drawn.

    Attributes:
        sizes: of the knowledge base: only the noise is that of so many rows, the slots are those of the data.
    """

    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0)
    draws: int = 20
    ablation_draws: int = 5
    ensembles: tuple[int, ...] = (10, 20, 30, 50, 70, 100)
    answers: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000)
    candidates: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    sizes: tuple[int, ...] = (2_000, 5_000, 20_000, 50_000, 200_000, 1_000_000)


QUICK = Extent((3.0,), 1, 1, (5, 10), (1, 10), (1, 5), (200, 2_000))


def mean(radius: float = 1.0, centred: bool = False) -> EmbeddingMeanMechanism:
    return EmbeddingMeanMechanism(type="embedding_mean", radius=radius, centred=centred)


def ranked(k: int) -> KeywordJointEmMechanism:
    return KeywordJointEmMechanism(type="keyword_joint_em", k=k)


def tested(k_min: int, k_max: int) -> KeywordPtrMechanism:
    return KeywordPtrMechanism(type="keyword_ptr", k_min=k_min, k_max=k_max)


@dataclass(frozen=True)
class Setting:
    """A data set: the field exemplars are compared by, the unit's column, and what to compare."""

    field: str
    unit_id: str
    keywords: tuple[TextMechanism, ...]
    ablated: TextMechanism


MEANS = (mean(), mean(1.0, True), mean(0.5, True), mean(0.25, True))
ABLATED = (mean(), mean(0.5, True), tested(1, 10))
SETTINGS = {
    "samsum": Setting("dialogue", "id", (ranked(5), ranked(10), tested(1, 10), tested(15, 30)), ranked(10)),
    "sroie": Setting("question", "doc_id", (ranked(1), ranked(3), tested(1, 3), tested(1, 10)), ranked(3)),
}


@dataclass(frozen=True)
class Ablation(TextScores):
    """A result, and what was varied."""

    varied: str
    value: int


async def ablate(
    texts: Texts,
    plan: Plan,
    name: str,
    task: GenerateTask,
    size: int,
    mechanisms: Sequence[TextMechanism],
    extent: Extent,
) -> list[Ablation]:
    """Vary one thing at a time, with noise and without."""
    rows = []

    async def add(
        kept: Texts, varied: str, value: int, mechanism: TextMechanism, rows_held: int = size, **changes: int
    ) -> None:
        changed = task.model_copy(update={"mechanism": mechanism, **changes})
        noise = noise_of(plan, name, changed, rows_held, ABLATION_EPSILON)
        for draws, method in ((0, "aggregate, no noise"), (extent.ablation_draws, "private")):
            answers = await kept.aggregate(changed, noise, draws)
            known = (mechanism, ABLATION_EPSILON, changed.answers, noise) if draws else (mechanism,)
            result = measure(answers, len(kept.asked), method, *known)
            rows.append(Ablation(**vars(result), varied=varied, value=value))
        print(f"{varied} {value}, {mechanism}: {rows[-1].rouge1:.1f}", flush=True)

    for mechanism in mechanisms:
        for ensemble in extent.ensembles:
            await add(texts.first_slots(ensemble), "ensemble", ensemble, mechanism, ensemble=ensemble)
        for answers in extent.answers:
            await add(texts, "answers", answers, mechanism, answers=answers)
        for held in extent.sizes:
            await add(texts, "size", held, mechanism, rows_held=held)
        if isinstance(mechanism, EmbeddingMeanMechanism):
            for candidates in extent.candidates:
                await add(texts, "candidates", candidates, mechanism, candidates=candidates)
    return rows


def plot_ablations(rows: Sequence[Ablation], title: str) -> Figure:
    """ROUGE-1 over what is varied, a panel for each; dashed without noise."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    panels = {
        "ensemble": "slots of the ensemble",
        "answers": "answers of the plan",
        "size": "rows of the knowledge base (noise only)",
        "candidates": "public candidates",
    }
    mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
    for axes, (varied, label) in zip(figure.subplots(2, 2, sharey=True).flat, panels.items(), strict=True):
        for number, mechanism in enumerate(mechanisms):
            chosen = [row for row in rows if (row.varied, row.mechanism) == (varied, mechanism)]
            for private, style in ((True, "-"), (False, "--")):
                line = [row for row in chosen if (row.method == "private") == private]
                look = {"marker": ".", "label": mechanism} if private else {"linewidth": 0.8}
                points = [row.value for row in line], [row.rouge1 for row in line]
                axes.plot(*points, style, color=f"C{number}", **look)
        axes.set(xlabel=label, xscale="linear" if varied == "ensemble" else "log")
        axes.grid(alpha=0.2)
        if varied == "ensemble":
            axes.legend(fontsize="x-small")
    figure.supylabel("ROUGE-1, %", fontsize="medium")
    figure.suptitle(title, fontsize="medium")
    return figure


def tiny(folder: Path) -> None:
    """Tickets and their replies in the shape of SAMSum."""
    tickets = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()[:66]]
    rows = [json.dumps({"id": str(i), "dialogue": t["text"], "summary": t["reply"]}) for i, t in enumerate(tickets)]
    for name, some in (("train", rows[:60]), ("test", rows[60:])):
        (folder / f"{name}.jsonl").write_text("\n".join(some))


def run(arguments: argparse.Namespace, extent: Extent) -> None:
    setting = SETTINGS[arguments.name]
    plan = load_plan((Path(__file__).parent / "evaluation" / f"{arguments.name}.yaml").read_text())
    name, task = next(iter(plan.tasks.items()))
    if arguments.quick:
        task = task.model_copy(update={"ensemble": max(extent.ensembles), "candidates": max(extent.candidates)})
        plan = plan.model_copy(update={"tasks": {name: task}})
    memory = EmbeddingMemory(Embedder())
    engine = NearestExemplarEngine(memory)
    if arguments.cache and arguments.cache.exists():
        asked = pickle.loads(arguments.cache.read_bytes())  # noqa: S301  (a file of the user's own)
    else:
        options = {"field": setting.field, "unit_id": setting.unit_id, "limit": arguments.queries}
        asked = asyncio.run(data.ask(arguments.folder, plan, name, engine, memory.embed, **options))
    size = data.training_size(arguments.folder)
    texts = Texts(asked, data.specification(plan, name, setting.field), engine, memory)
    if arguments.cache:
        arguments.cache.write_bytes(pickle.dumps(asked))
    title = f"{arguments.name}, {len(asked)} test queries"
    grid = Grid(extent.epsilons, [task.answers], extent.draws)
    results = asyncio.run(evaluate(texts, plan, name, task, size, [*MEANS, *setting.keywords], grid))
    write_csv(results, arguments.out / f"{arguments.name}.csv")
    plot(results, title).savefig(arguments.out / f"{arguments.name}.png", dpi=110)
    rows = asyncio.run(ablate(texts, plan, name, task, size, [*ABLATED, setting.ablated], extent))
    write_csv(rows, arguments.out / f"{arguments.name}-ablations.csv")
    figure = plot_ablations(rows, f"{title}, ε = {ABLATION_EPSILON:g}")
    figure.savefig(arguments.out / f"{arguments.name}-ablations.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate free text.")
    parser.add_argument("name", nargs="?", choices=sorted(SETTINGS))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--queries", type=int, default=100, help="how many test rows")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep the engine's answers here")
    parser.add_argument("--quick", action="store_true", help="made-up data, nothing else to name; keeps nothing")
    arguments = parser.parse_args()
    named = [arguments.name, arguments.folder, arguments.out]
    if arguments.quick:
        if any(named):
            parser.error("--quick makes its own data: leave out NAME, FOLDER and OUT")
        with tempfile.TemporaryDirectory() as folder:
            tiny(Path(folder))
            arguments.name, arguments.folder, arguments.out = "samsum", Path(folder), Path(folder)
            run(arguments, QUICK)
    elif all(named):
        run(arguments, Extent())
    else:
        parser.error("name a data set, its folder and a folder for the results, or give --quick")


if __name__ == "__main__":
    main()
