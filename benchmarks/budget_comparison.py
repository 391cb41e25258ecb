"""How much of a budget one answer may spend, by DP-ICL's stated analysis, by its correction, and by this accountant.

    python benchmarks/budget_comparison.py [--csv F] [--png F] [--quick]

Settings are DP-ICL's for dialogue summaries (Wu et al., arXiv 2305.01639): q = 400/14732 of SAMSum's training set, δ =
5e-5. More ε for an answer is less noise. For propose-test-release the choice of k has the ε shown and the test noise of
standard deviation 2σ; both follow from one cost, shared equally
(:func:`accounting.privacy.calibration.propose_test_release`), so every analysis judges the same mechanisms. Half
of δ is for δ₀, which counts once for every answer, in every analysis.

The paper's analysis (its appendix B.3) is Rényi differential privacy at orders α:

- Theorem 8, after Bun and Steinke (arXiv 1605.02065): the exponential mechanism has a Rényi divergence of at most
  ``min(α ε²/2, ln[(sinh(αε) - sinh((α-1)ε)) / sinh(ε)] / (α-1))``.
- Theorem 11: the test adds ``α / (2 σ²)``, outside an event of probability δ₀.
- Theorem 12: sampling amplifies that by the best bound for *any* mechanism of such divergences, and gives no formula.
  The known bound for any mechanism is that of Zhu and Wang (ICML 2019): with rate q and whole α the α-th moment is at
  most ``(1-q)^(α-1) (αq-q+1) + Σ_(l>=2) w_l C(α,l) (1-q)^(α-l) q^l e^((l-1) ε(l))``, where ``w_2 = 1`` and
  ``w_l = 3`` beyond: "stated". Without the factor 3 the sum is the binomial expansion of the moment of ``1 - q + q r``
  itself, when the differing unit is removed: "stated, exact sampling". Where the bound by joint convexity,
  ``1 - q + q e^((α-1) ε(α))``, is lower, it is used instead: at small ε the factor 3 alone would use up the budget.

"corrected" has exact sampling, and ``α ε²/8`` in place of Theorem 8's ``α ε²/2``: the exponential mechanism has a
bounded range (Cesar and Rogers, arXiv 2004.07223). The sum covers only the removal of a unit; a check against the
accountant's exact moments in both directions shows that an addition does not cost more. Moments are log-convex in α, so
a straight line between whole orders is a bound too. All three convert to ε as the accountant does (Canonne, Kamath and
Steinke, arXiv 2004.00010), which is kinder to the paper than the older conversions it cites.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant
from matplotlib.figure import Figure
from scipy import optimize, special

from accounting.privacy.calibration import BOUNDED_RANGE, Family, Grant, calibrate, propose_test_release
from accounting.privacy.events import Sampling
from accounting.privacy.profiles import Array, BoundedRange, ProposeTestRelease, SymmetricProfile

Q, DELTA = 400 / 14732, 5e-5
ANSWERS = (100, 1_000, 10_000)
EPSILONS = (1.0, 3.0, 8.0)
DELTA0_SHARE = 0.5
EM, PTR = "keyword_joint_em", "keyword_ptr"
STATED, STATED_EXACT, CORRECTED, RDP, PLD = "stated", "stated, exact sampling", "corrected", "our RDP", "our PLD"
ANALYSES = (STATED, STATED_EXACT, CORRECTED, RDP, PLD)

_WHOLE = np.arange(1.0, 257.0)
_ORDERS = 1 + np.geomspace(0.05, 255, 400)
_CALIBRATED = 1.005  # calibration comes this close to its target, as a factor

Curve = Callable[[float, Array], Array]


@dataclass(frozen=True)
class Row:
    """One cell. Only propose-test-release has ``sigma``; ``ratio`` is ε per answer, divided by that of "stated"."""

    release: str
    answers: int
    epsilon: float
    analysis: str
    per_answer: float
    sigma: float | None
    ratio: float


def two_outcomes(epsilon: float, orders: Array) -> Array:
    """The largest divergence of any ε-private mechanism, at orders above 1: the second term of Theorem 8."""
    # The difference of the sinh is 2 cosh((2α-1) ε/2) sinh(ε/2), and sinh(ε) is 2 sinh(ε/2) cosh(ε/2).
    far, near = (2 * orders - 1) * epsilon / 2, epsilon / 2
    return np.asarray((np.logaddexp(far, -far) - np.logaddexp(near, -near)) / (orders - 1))


def stated_divergence(epsilon: float, orders: Array) -> Array:
    """The divergence by Theorem 8 of DP-ICL."""
    return np.minimum(orders * epsilon**2 / 2, two_outcomes(epsilon, orders))


def corrected_divergence(epsilon: float, orders: Array) -> Array:
    """The divergence by Theorem 8, with the smaller first term that a bounded range allows."""
    return np.minimum(orders * epsilon**2 / 8, two_outcomes(epsilon, orders))


def sampled_divergence(curve: Callable[[Array], Array], factor: float) -> Array:
    """Divergences at ``_ORDERS`` after Poisson sampling; ``factor`` weighs the moments from the third on."""
    a, moment = _WHOLE[1:, None], _WHOLE[None, 1:]
    inside = moment <= a
    ways = special.gammaln(a + 1) - special.gammaln(moment + 1) - special.gammaln(np.where(inside, a - moment, 0) + 1)
    terms = ways + (a - moment) * math.log1p(-Q) + moment * math.log(Q) + (moment - 1) * curve(_WHOLE[None, 1:])
    terms = np.where(inside, terms + np.where(moment > 2, math.log(factor), 0.0), -np.inf)
    below = (a - 1) * math.log1p(-Q) + np.log1p((a - 1) * Q)
    log_moments = special.logsumexp(np.concatenate([below, terms], axis=1), axis=1)
    sampled = np.interp(_ORDERS, _WHOLE, np.concatenate([[0.0], log_moments])) / (_ORDERS - 1)
    by_convexity = np.logaddexp(math.log1p(-Q), math.log(Q) + (_ORDERS - 1) * curve(_ORDERS)) / (_ORDERS - 1)
    return np.asarray(np.minimum(sampled, by_convexity))


def allowed(family: Family, answers: int, epsilon: float, divergence: Curve, factor: float) -> SymmetricProfile:
    """The mechanism with the least noise that an analysis by Rényi divergences allows."""
    delta = DELTA + math.expm1(answers * math.log1p(-Q * family.delta0))

    def excess(log_cost: float) -> float:
        mechanism = family.mechanism(math.exp(log_cost))
        bounded, sigma = parameters(mechanism)
        noise = 0.0 if sigma is None else 1 / (2 * sigma**2)
        rdp = sampled_divergence(lambda orders: divergence(bounded, orders) + noise * orders, factor)
        return float(rdp_privacy_accountant.compute_epsilon(_ORDERS, answers * rdp, delta)[0]) - epsilon

    return family.mechanism(math.exp(optimize.brentq(excess, math.log(1e-9), math.log(50), xtol=1e-6)))


def parameters(mechanism: SymmetricProfile) -> tuple[float, float | None]:
    """ε of the exponential mechanism, and σ of the test if there is one."""
    match mechanism:
        case BoundedRange(epsilon):
            return epsilon, None
        case ProposeTestRelease(epsilon, sigma, _):
            return epsilon, sigma
    raise TypeError(f"not a release of keywords: {mechanism}")


def compare(numbers: Sequence[int], epsilons: Sequence[float]) -> list[Row]:
    """Compare the analyses for every release, number of answers and total ε.

    Raises:
        ArithmeticError: "corrected" allows more than the exact moments, so it is not a bound.
    """
    rows = []
    for release in (EM, PTR):
        for answers in numbers:
            delta0 = DELTA0_SHARE * DELTA / (answers * Q)
            family = BOUNDED_RANGE if release == EM else propose_test_release(delta0)
            grant = Grant(family, Sampling("units", Q), answers)
            for epsilon in epsilons:
                found = {
                    STATED: allowed(family, answers, epsilon, stated_divergence, 3.0),
                    STATED_EXACT: allowed(family, answers, epsilon, stated_divergence, 1.0),
                    CORRECTED: allowed(family, answers, epsilon, corrected_divergence, 1.0),
                    RDP: calibrate([grant], epsilon, DELTA, "rdp")[0].mechanism,
                    PLD: calibrate([grant], epsilon, DELTA, "pld")[0].mechanism,
                }
                if parameters(found[CORRECTED])[0] > _CALIBRATED * parameters(found[RDP])[0]:
                    raise ArithmeticError(f"{release}, {answers} answers, epsilon {epsilon}: {found}")
                stated = parameters(found[STATED])[0]
                for analysis in ANALYSES:
                    bounded, sigma = parameters(found[analysis])
                    rows.append(Row(release, answers, epsilon, analysis, bounded, sigma, bounded / stated))
    return rows


def table(rows: Sequence[Row], release: str) -> str:
    """A Markdown table: a line per setting, a column per analysis, and ratios of their ε per answer."""
    lines = [f"| answers | ε in all | {' | '.join(ANALYSES)} | RDP / stated | PLD / stated | PLD / stated, exact |"]
    lines.append("|---:|---:|" + "---:|" * (len(ANALYSES) + 3))
    for answers, epsilon in dict.fromkeys((r.answers, r.epsilon) for r in rows):
        cells = {r.analysis: r for r in rows if (r.release, r.answers, r.epsilon) == (release, answers, epsilon)}
        shown = [
            f"{r.per_answer:.3f}" + ("" if r.sigma is None else f", {r.sigma:.2f}")
            for r in (cells[analysis] for analysis in ANALYSES)
        ]
        ratios = cells[RDP].ratio, cells[PLD].ratio, cells[PLD].ratio / cells[STATED_EXACT].ratio
        shown += [f"{ratio:.2f}" for ratio in ratios]
        lines.append(f"| {answers:,} | {epsilon:g} | {' | '.join(shown)} |")
    return "\n".join(lines)


def write_csv(rows: Sequence[Row], file: Path) -> None:
    """Write every row, with numbers to four significant digits."""
    names = [field.name for field in fields(Row)]
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            values = [getattr(row, name) for name in names]
            writer.writerow([f"{value:.4g}" if isinstance(value, float) else value for value in values])


def plot(rows: Sequence[Row]) -> Figure:
    """Plot ε per answer over the number of answers: a row per release, a column per total ε, a line per analysis."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    epsilons = list(dict.fromkeys(r.epsilon for r in rows))
    grid = figure.subplots(2, len(epsilons), sharex=True, sharey="row", squeeze=False)
    styles = {
        STATED: ("tab:red", "-"), STATED_EXACT: ("tab:red", ":"), CORRECTED: ("tab:grey", "--"),
        RDP: ("tab:blue", ":"), PLD: ("tab:blue", "-"),
    }  # fmt: skip
    for line, release in zip(grid, (EM, PTR), strict=True):
        for axes, epsilon in zip(line, epsilons, strict=True):
            for analysis, (colour, style) in styles.items():
                chosen = [r for r in rows if (r.release, r.epsilon, r.analysis) == (release, epsilon, analysis)]
                x, y = [r.answers for r in chosen], [r.per_answer for r in chosen]
                axes.plot(x, y, color=colour, linestyle=style, marker=".", label=analysis)
            axes.set(xscale="log", yscale="log", title=f"{release}, ε = {epsilon:g} in all")
            axes.title.set_fontsize("medium")
            axes.grid(which="both", alpha=0.2)
        line[0].set_ylabel("ε of one answer" if release == EM else "ε of choosing k")
    for axes in grid[-1]:
        axes.set_xlabel("answers")
    grid[0][-1].legend(fontsize="x-small")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of a budget one answer may spend, by analysis.")
    parser.add_argument("--csv", type=Path, metavar="F", help="write all rows here")
    parser.add_argument("--png", type=Path, metavar="F", help="write the plot here")
    parser.add_argument("--quick", action="store_true", help="one setting")
    arguments = parser.parse_args()
    rows = compare(*(((100,), (3.0,)) if arguments.quick else (ANSWERS, EPSILONS)))
    print(f"{EM}: ε of one answer\n\n{table(rows, EM)}\n")
    print(f"{PTR}: ε of choosing k, σ of the test\n\n{table(rows, PTR)}")
    if arguments.csv:
        write_csv(rows, arguments.csv)
    if arguments.png:
        plot(rows).savefig(arguments.png, dpi=110)


if __name__ == "__main__":
    main()
