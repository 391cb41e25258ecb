"""A report as a picture: restoration and leakage, at equal true ε, beside what needs no answer at all."""

from collections import defaultdict
from typing import Any


def plot(report: dict[str, Any]) -> Any:
    """A matplotlib figure: accuracy on the left, an attacker's success on the right.

    Args:
        report: report of :meth:`research.restore.job.Job.run`.
    """
    from matplotlib.figure import Figure

    curves: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in report["table"]:
        curves[cell["mechanism"]].append(cell)
    controls = report["controls"]
    lines = {"whole text": "full", "redacted text": "redacted", "one vector for all": "constant"}
    told = {"redacted text alone": "redacted_attacker", "commonest answer": "option_prior"}
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    panels = (("steered", "answers right", lines), ("attacker", "attacker learns the answer", told))
    for axes, (quantity, title, levels) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for name, cells in curves.items():
            kind = "o-" if name.endswith("-RR") else ".--"
            axes.plot([cell["epsilon"] for cell in cells], [cell[quantity] for cell in cells], kind, label=name)
        for (name, control), style in zip(levels.items(), (":", "-.", "--"), strict=False):
            axes.axhline(controls[control], color="grey", linewidth=0.8, linestyle=style)
            axes.annotate(
                name, (1, controls[control]), xycoords=("axes fraction", "data"), ha="right", fontsize="small"
            )
        axes.set(title=title, xlabel="true ε of a question", ylim=(-0.02, 1.05), xscale="log")
    figure.axes[0].legend(fontsize="small")
    return figure
