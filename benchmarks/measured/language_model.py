"""What `dpicl serve` takes to be ready with SmolLM2 on a processor, at its first start and at its second.

At the first start nothing is cached outside the virtual environment. Memory that processes share counts once (PSS).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import yaml
from processes import started, taken

from service.cli.serve import DEFAULT_CONFIG

TARGETS = {"first start: processor seconds": 1.5, "first start: bytes": 1.5}


def main() -> None:
    """Start the service twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first start alone")
    chosen = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = yaml.safe_load(DEFAULT_CONFIG.read_text())
        config["applications"][0]["args"]["engine"] = {"name": "vllm", "model": "smollm2", "max_answer_tokens": 40}
        (folder / "serve.yaml").write_text(yaml.safe_dump(config))
        caches = {"VLLM_CACHE_ROOT": f"{folder}/vllm", "XDG_CACHE_HOME": f"{folder}/cache"}
        for start in ("first start", "second start")[: 1 if chosen.quick else 2]:
            with started(folder, "--config", f"{folder}/serve.yaml", **caches) as service:
                figures |= {f"{start}: {name}": value for name, value in taken(service).items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
