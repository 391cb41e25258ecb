"""Unpacking a GGUF file: a small one, cut from SmolLM2's. The whole model: `test_smollm2.py`."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import pytest
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from safetensors.torch import load_file
from transformers import AutoTokenizer

from service.engines.vllm import memory, model_folder
from tests.service.engines.test_model_folder import refusal

pytestmark = pytest.mark.model

PACKAGED = model_folder._PACKAGED["smollm2"]
WORDS = 2000
READERS = gguf.GGUFReader, gguf.get_tensor_name_map


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with one layer of thirty, and its first tokens."""
    reader = GGUFReader(model_folder._packaged_file(*PACKAGED))
    given = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tokens, merges = given["tokenizer.ggml.tokens"], given["tokenizer.ggml.merges"]
    merged = WORDS - tokens.index(merges[0].replace(" ", ""))
    given |= {"tokenizer.ggml.tokens": tokens[:WORDS], "tokenizer.ggml.merges": merges[:merged]}
    given |= {"tokenizer.ggml.token_type": given["tokenizer.ggml.token_type"][:WORDS]}
    given |= {"llama.block_count": 1, "llama.vocab_size": WORDS}
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    writer = GGUFWriter(path, given.pop("general.architecture"))
    for name, value in given.items():
        kind, *of = reader.fields[name].types
        writer.add_key_value(name, value, kind, of[0] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        if tensor.name.startswith(("token_embd", "output_norm", "blk.0.")):
            rows = tensor.data[:WORDS] if tensor.name.startswith("token_embd") else tensor.data
            writer.add_tensor(tensor.name, rows, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def folder(file: Path) -> Path:
    """The folder of the unpacked file, for which two threads ask at the same time."""
    with (
        mock.patch.object(model_folder, "_convert", wraps=model_folder._convert) as converted,
        ThreadPoolExecutor(2) as pool,
    ):
        first, second = pool.map(model_folder.model_folder, [str(file)] * 2)
    assert converted.call_count == 1
    assert first == second
    return Path(first)


@pytest.fixture(scope="module")
def exact(file: Path) -> Path:
    return Path(model_folder.model_folder(str(file), exact=True))


def test_it_is_unpacked_once(file: Path, folder: Path) -> None:
    before = (folder / "model.safetensors").stat()
    assert model_folder.model_folder(str(file)) == str(folder)
    assert (folder / "model.safetensors").stat() == before
    assert {folder.name, f"{folder.name}.lock"} <= {one.name for one in folder.parent.iterdir()}
    assert not list(folder.parent.glob("*.partial"))


def test_its_fields_are_read_once(file: Path, tmp_path: Path) -> None:
    """transformers itself reads them for the configuration, the tokenizer and the weights: half a minute of SmolLM2."""
    read, built = [], GGUFReader._build_fields

    def counted(reader: GGUFReader, *arguments: Any) -> int:
        read.append(reader)
        return built(reader, *arguments)

    with mock.patch.object(GGUFReader, "_build_fields", counted):
        model_folder._convert(file, tmp_path / "again", int8=False)
    assert len(read) == 1
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == READERS


def test_integers_are_what_the_weights_are_rounded_to(folder: Path, exact: Path) -> None:
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        assert folder == exact
        return
    rounded, weights = (load_file(one / "model.safetensors") for one in (folder, exact))
    assert len([name for name in rounded if name.endswith("_scale")]) == 7
    for name, weight in weights.items():
        scale = rounded.get(f"{name}_scale")
        if scale is None:
            assert torch.equal(rounded[name], weight)
        else:
            assert ((rounded[name] * scale - weight.float()).abs() <= 0.5001 * scale).all(), name


def test_a_damaged_file_in_the_cache_is_noticed(file: Path, folder: Path) -> None:
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 1
    weights.write_bytes(content)
    assert f"{folder} is damaged: delete it" in refusal(file)
    (folder / "sha256").unlink()
    assert "delete it" in refusal(file)


def test_a_file_may_want_a_token_before_each_text(file: Path, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(b"add_bos_token") + len(b"add_bos_token") + 4] = True  # behind its type
    (tmp_path / "wants.gguf").write_bytes(content)
    tokenizer = AutoTokenizer.from_pretrained(model_folder.model_folder(str(tmp_path / "wants.gguf")))
    assert tokenizer.encode("Yes")[0] == tokenizer.bos_token_id
    assert tokenizer.decode(tokenizer.encode("Yes")[1:]) == "Yes"


def test_files_that_are_not_models(file: Path, tmp_path: Path) -> None:
    given, content = tmp_path / "mine.gguf", file.read_bytes()
    for damaged in (b"", b"Dear model,", content[: len(content) // 2]):
        given.write_bytes(damaged)
        assert f"{given} is damaged" in refusal(given)


def test_too_little_memory_is_reported_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (limit := tmp_path / "memory.max").write_text("100000000")
    monkeypatch.setattr(memory, "_LIMIT", limit)
    packaged = model_folder._packaged_file(*PACKAGED)
    said = refusal("smollm2")
    assert f"memory to unpack {packaged}" in said
    assert "0.5 GiB, and 0.1 " in said


def test_too_little_room_leaves_nothing_behind(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, before[1]))
    try:
        said = refusal(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be unpacked" in said
    assert "File too large" in said
    (left,) = (one.name for one in tmp_path.rglob("*") if one.is_file())
    assert left.startswith("cut")
    assert left.endswith(".lock")
