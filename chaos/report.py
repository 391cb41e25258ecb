"""The report of a run, one row per scenario, as a table and as JSON."""

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from chaos.invariants import Evidence, replayed
from chaos.world import World


@dataclass(frozen=True)
class Result:
    """Figures of one scenario.

    Attributes:
        statuses: number of responses by status; 0 counts questions without a response.
        bare: 5xx responses without a problem document: from Ray Serve's proxy, or from a service that died.
        answered: number of different answers received.
        silence_s: longest time without a newly charged answer, while there was load.
        recovery_s: recoveries by fault: how often the service recovered, and the median and longest seconds until it
            answered a question asked after the fault.
        orphans: processes that outlived a killed service by 15 s.
        notes: figures that only this scenario has.
        problems: invariants that did not hold.
    """

    scenario: str
    seconds: float
    requests: int
    statuses: dict[int, int]
    bare: int
    answered: int
    charged: int
    released: int
    lost: int
    voided: int
    faults: int
    restarts: int
    silence_s: float
    recovery_s: dict[str, tuple[int, float, float]]
    orphans: list[str]
    notes: dict[str, object]
    problems: list[str]


def result(world: World, evidence: Evidence, found: list[str], seconds: float) -> Result:
    """Compute a scenario's figures."""
    report = replayed(evidence)
    states = Counter(charge.state for charge in evidence.charges.values())
    took: dict[str, list[float]] = {}
    for fault, after in world.faults:
        if after is not None:
            took.setdefault(fault, []).append(round(after, 2))
    return Result(
        scenario=world.scenario.name,
        seconds=round(seconds, 1),
        requests=len(evidence.received),
        statuses=dict(sorted(world.load.statuses().items())),
        bare=sum(one.status >= 500 and not one.slug for one in evidence.received),
        answered=len({one.release["id"] for one in evidence.received if one.release is not None}),
        charged=sum(report.charged.values()),
        released=sum(report.released.values()),
        lost=states["lost"] + states["charged"],
        voided=states["voided"],
        faults=sum(fault != "the end" for fault, _ in world.faults),
        restarts=len(world.supervisor.starts) - 1,
        silence_s=_silence(evidence),
        recovery_s={name: (len(all), statistics.median(all), max(all)) for name, all in sorted(took.items())},
        orphans=sorted(world.supervisor.orphans),
        notes=world.notes,
        problems=found,
    )


def _silence(evidence: Evidence) -> float:
    charged = sorted(one.until for one in evidence.received if one.release and one.release["cost"]["charged"])
    return round(max((later - before for before, later in pairwise(charged)), default=0.0), 1)


_COLUMNS = ("requests", "bare", "answered", "charged", "released", "lost", "voided", "faults", "restarts")


def table(results: list[Result]) -> str:
    """Format the results as a Markdown table."""
    lines = [
        "| scenario | by status | " + " | ".join(_COLUMNS) + " | longest silence | held |",
        "|---" * (len(_COLUMNS) + 4) + "|",
    ]
    for one in results:
        statuses = ", ".join(f"{status or 'none'}: {number}" for status, number in one.statuses.items())
        figures = " | ".join(str(getattr(one, column)) for column in _COLUMNS)
        lines.append(
            f"| {one.scenario} | {statuses} | {figures} | {one.silence_s:.1f} s | {'no' if one.problems else 'yes'} |"
        )
    return "\n".join(lines)


def write(results: list[Result], folder: Path) -> None:
    """Write all results to ``chaos.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chaos.json").write_text(
        json.dumps([asdict(one) for one in results], indent=2, ensure_ascii=False) + "\n"
    )
