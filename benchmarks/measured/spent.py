"""The ε of a plan's charges so far, as a serving process computes it at each new percent of a task's answers."""

import json
import resource
import subprocess
import sys
import time

from accounting.plans.plan import calibrate_plan, parse_plan
from service.answering.plans.preview import epsilon_spent

TARGETS = {"first value, seconds": 10.0, "next values, seconds": 2.0, "memory of these, bytes": 3.0}
TASKS = 4
ANSWERS = 1000


def document() -> str:
    """A plan of four tasks, as it is signed."""
    task = {
        "kind": "classify",
        "labels": ["red", "blue", "green"],
        "prompt": {"exemplar": "{text} {label}", "query": "{text}"},
        "shots": 4,
        "answers": ANSWERS,
        "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
    }
    tasks = {f"task-{number}": task | {"ensemble": 40 + number} for number in range(TASKS)}
    plan = {"knowledge_base": "support", "budget": {"epsilon": 4, "delta": 1e-5}, "tasks": tasks}
    return calibrate_plan(parse_plan(plan), 9000).model_dump_json()


def seconds(signed: str, charged: int) -> float:
    """Processor time of one value."""
    started = time.process_time()
    epsilon_spent(signed, {f"task-{number}": charged + 20 * number for number in range(TASKS)})
    return time.process_time() - started


if __name__ == "__main__":
    if "--document" in sys.argv:  # in a process of its own, which imports what calibration needs
        print(document())
        sys.exit()
    signed = subprocess.run(
        [sys.executable, __file__, "--document"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = seconds(signed, 10)
    percents = 2 if "--quick" in sys.argv else 10
    following = sum(seconds(signed, 10 * percent) for percent in range(2, 2 + percents)) / percents
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        json.dumps(
            {
                "first value, seconds": first,
                "next values, seconds": following,
                "memory of these, bytes": 1024 * grown,
            }
        )
    )
