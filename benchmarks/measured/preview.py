"""Proposals in a plan's preview: processor seconds for plans of 1 to 25 tasks that differ, without rows.

At the earlier commit the time grew with the square of the number of tasks. The targets for 10 and 25 tasks are those
of 5 tasks if it grows in proportion.
"""

import json
import sys
import time
from typing import Any

from accounting.plans.plan import Plan, parse_plan
from service.answering.plans.calibrating import calibrate
from service.answering.plans.proposals import proposals

TARGETS = {"proposals of 5 tasks": 10.0, "proposals of 10 tasks": 25.0, "proposals of 25 tasks": 75.0}
SIZE = 9000


def plan(tasks: int) -> Plan:
    """A plan of tasks with labels, slots and answers of their own, so that no two have equal noise."""

    def task(number: int) -> dict[str, Any]:
        return {
            "kind": "classify",
            "labels": [f"{colour}-{number}" for colour in ("red", "blue", "green")],
            "prompt": {"exemplar": "{text} {label}", "query": "{text}"},
            "shots": 4,
            "ensemble": 40 + number,
            "answers": 100 + 10 * number,
            "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
        }

    return parse_plan(
        {
            "knowledge_base": "support",
            "budget": {"epsilon": 4, "delta": 1e-5},
            "tasks": {f"task-{number}": task(number) for number in range(tasks)},
        }
    )


def seconds(tasks: int) -> float:
    """Processor time of the proposals."""
    calibrated = calibrate(plan(tasks), SIZE)  # which also imports what calibration needs
    started = time.process_time()
    found = proposals(calibrated)
    took = time.process_time() - started
    if len(found) < 2 * tasks:
        raise SystemExit(f"{len(found)} proposals for {tasks} tasks are too few: not the same work")
    return took


if __name__ == "__main__":
    sizes = (1, 2) if "--quick" in sys.argv else (1, 5, 10, 25)
    print(json.dumps({f"proposals of {tasks} task{'s' if tasks > 1 else ''}": seconds(tasks) for tasks in sizes}))
