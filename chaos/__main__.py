"""Run each scenario in turn, then print a table; exit with 1 if an invariant did not hold."""

import argparse
import signal
import sys
import time
from pathlib import Path

from chaos import report
from chaos.faults import database, disk, engine, kill, malformed, many, slow
from chaos.invariants import collect, problems
from chaos.world import Scenario, recover, world

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        malformed.SCENARIO,
        slow.SCENARIO,
        many.SCENARIO,
        engine.SCENARIO,
        database.SCENARIO,
        disk.SCENARIO,
        disk.POSTGRES,
        kill.SCENARIO,
    )
}


def run(scenario: Scenario, seed: int, seconds: float | None = None) -> report.Result:
    """Set up a service, break it, let it recover, stop it, and check the invariants."""
    began = time.monotonic()
    with world(scenario, seed) as this:
        scenario.inflict(this, scenario.seconds if seconds is None else seconds)
        recover(this)
        this.load.stop()
        left = this.supervisor.stop()
        this.wrong += [f"{name} still runs after the service was stopped" for name in left]
        if this.faults[-1][1] is None:
            this.wrong.append("the service did not answer again by itself")
        evidence = collect(this)
        return report.result(this, evidence, problems(evidence), time.monotonic() - began)


def main() -> None:
    """Run the scenarios that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, help="duration of the scenario kill (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="run this scenario; may be repeated")
    parser.add_argument("--output", type=Path, default=Path("var/chaos"), help="folder for chaos.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    results = []
    for name in options.only or SCENARIOS:
        seconds = options.minutes * 60 if options.minutes and name == "kill" else None
        print(f"{name} ...", file=sys.stderr, flush=True)
        results.append(run(SCENARIOS[name], options.seed, seconds))
        print(report.table(results[-1:]), *results[-1].problems, sep="\n", file=sys.stderr, flush=True)
        report.write(results, options.output)
    print(report.table(results))
    sys.exit(any(one.problems for one in results))


if __name__ == "__main__":
    main()
