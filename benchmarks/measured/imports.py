"""Two commands as people run them, mostly imports: processor seconds of the whole process, the least of a few runs."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TARGETS = {"plan preview --help": 1.5, "plan preview of one task": 1.95}
MAIN = "from service.cli import main; main()"
PLAN = """
knowledge_base: support
budget: {epsilon: 4, delta: 1.0e-5}
tasks:
  team:
    kind: classify
    labels: [red, blue, green]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    shots: 4
    ensemble: 40
    answers: 100
    mechanism: {type: rnm_gaussian, vote: soft}
"""


def seconds(*command: str) -> float:
    """Processor time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", MAIN, *command], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    runs = 1 if "--quick" in sys.argv else 5
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "plan.yaml")
        file.write_text(PLAN)
        commands = {
            "plan preview --help": ("plan", "preview", "--help"),
            "plan preview of one task": ("plan", "preview", str(file), "--public-size", "9000"),
        }
        print(json.dumps({name: min(seconds(*one) for _ in range(runs)) for name, one in commands.items()}))
