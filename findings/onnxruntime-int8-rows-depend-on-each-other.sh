#!/usr/bin/env bash
# ONNX Runtime 1.23.2, dynamic quantisation to int8 (quantize_dynamic of onnxruntime.quantization): what a row of a batch gives depends
# on the other rows. Activations get one scale for the whole tensor, so the largest number in the batch decides how finely every row
# is rounded; `per_channel` concerns weights alone. Of 200 batches of four rows whose first row stays the same, its product with a matrix
# changed in 200, by up to an eighth of its largest entry; the same graph in float32 gave it the same bits in all. One request's text thus leaves a
# trace in another's embedding wherever a server batches them. About 40 MB to fetch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -qq --no-compile --no-cache-dir --disable-pip-version-check onnxruntime==1.23.2 onnx==1.19.1 numpy==2.3.5
FOLDER=$folder "$python" - << 'END'
import logging
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

logging.disable(logging.WARNING)
FOLDER, WIDTH, BATCHES = Path(os.environ["FOLDER"]), 64, 200
rng = np.random.default_rng(0)
weights = numpy_helper.from_array(rng.normal(size=(WIDTH, 8)).astype(np.float32), "weights")
rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [None, WIDTH])
products = helper.make_tensor_value_info("products", TensorProto.FLOAT, [None, 8])
graph = helper.make_graph([helper.make_node("MatMul", ["rows", "weights"], ["products"])], "product", [rows], [products], [weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), FOLDER / "float32.onnx")
for name, per_channel in (("int8", False), ("int8 per channel", True)):
    quantize_dynamic(FOLDER / "float32.onnx", FOLDER / f"{name}.onnx", weight_type=QuantType.QInt8, per_channel=per_channel)

first = rng.normal(size=(1, WIDTH)).astype(np.float32)
batches = [np.vstack([first, rng.normal(size=(3, WIDTH)).astype(np.float32)]) for _ in range(BATCHES + 1)]
changed = {}
for name in ("float32", "int8", "int8 per channel"):
    session = onnxruntime.InferenceSession(FOLDER / f"{name}.onnx", providers=["CPUExecutionProvider"])
    alike, *others = (session.run(None, {"rows": batch})[0][0] for batch in batches)
    changed[name] = sum(other.tobytes() != alike.tobytes() for other in others)
    most = max(abs(other - alike).max() for other in others) / abs(alike).max()
    print(f"{name}: the first row's product changed in {changed[name]} of {BATCHES} batches, by up to {most:.0%} of its largest entry")
assert changed["float32"] == 0
assert min(changed["int8"], changed["int8 per channel"]) > 0.95 * BATCHES
END
