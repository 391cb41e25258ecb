"""Bring data sets into the shape ``dpicl eval`` reads: a folder with ``train.jsonl`` and ``test.jsonl``.

    python research/studies/prepare.py samsum FOLDER OUT
    python research/studies/prepare.py sroie FOLDER OUT
    python research/studies/prepare.py sst2 FOLDER OUT
    python research/studies/prepare.py ddxplus FOLDER OUT
    python research/studies/prepare.py ddxplus_spans FOLDER OUT
    python research/studies/prepare.py pubmedqa FOLDER OUT
    python research/studies/prepare.py support examples/support OUT

SAMSum is in shape, but for one training row without a dialogue, which is left out. Of SROIE, ``documents.jsonl``
(``doc_id``, ``lines``) and ``qa.jsonl`` (``id``, ``doc_id``, ``question``, ``answer``) are joined, and the last 100
documents are for testing. Of documents that read alike the first is kept. SST-2 is tested on ``dev.jsonl``, and the
support tickets on ``questions.jsonl``. Of the questions with options that PrivacyRestore made of DDXPlus the right
option is the label; the larger file, ``test.jsonl``, is trained on, and ``dev.jsonl`` is for testing. Of PubMedQA's
labelled questions the last 300 are for testing.

``ddxplus_spans`` writes the questions of DDXPlus with their private spans, for the six commonest diagnoses, and
``train.yaml``, with which ``dpicl restore train`` makes a bundle for SmolLM2.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

TEST_DOCUMENTS = 100
TEST_QUESTIONS = 300
DIAGNOSES = 6


def samsum(source: Path, out: Path) -> None:
    for name in ("train", "test"):
        rows = [row for row in _read(source / f"{name}.jsonl") if row["dialogue"].strip() and row["summary"].strip()]
        _write(out / f"{name}.jsonl", rows)


def sroie(source: Path, out: Path) -> None:
    documents = {row["doc_id"]: "\n".join(row["lines"]) for row in _read(source / "documents.jsonl")}
    first: dict[str, str] = {}
    for doc_id, text in documents.items():
        first.setdefault(text, doc_id)
    testing = set(list(first.values())[-TEST_DOCUMENTS:])
    split: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for row in _read(source / "qa.jsonl"):
        document = documents[row["doc_id"]]
        unit = first[document]
        if unit == row["doc_id"]:
            kept = {"id": row["id"], "doc_id": unit, "document": document}
            kept |= {"question": row["question"], "answer": row["answer"]}
            split["test" if unit in testing else "train"].append(kept)
    for name, rows in split.items():
        _write(out / f"{name}.jsonl", rows)


def sst2(source: Path, out: Path) -> None:
    for name, its in (("train", "train"), ("test", "dev")):
        _write(out / f"{name}.jsonl", _read(source / f"{its}.jsonl"))


def ddxplus(source: Path, out: Path) -> None:
    for name, its in (("train", "test"), ("test", "dev")):
        rows = _read(source / f"{its}.jsonl")
        _write(out / f"{name}.jsonl", [{"id": r["id"], "text": r["question"], "label": r["answer"]} for r in rows])


def ddxplus_spans(source: Path, out: Path) -> None:
    rows = _read(source / "test.jsonl")
    options = [answer for answer, _ in Counter(row["answer"] for row in rows).most_common(DIAGNOSES)]
    patients = [
        {"text": row["question"], "spans": row["privacy_spans"], "answer": row["answer"], "group": row["id"]}
        for row in rows
        if row["answer"] in options
    ]
    _write(out / "patients.jsonl", patients)
    settings = {
        "name": "ddxplus",
        "model": "smollm2",
        "data": "patients.jsonl",
        "declared": "public",
        "declared_by": "the authors of DDXPlus",
        "prompt": "{text} Answer:",
        "options": options,
        "profiles": [DIAGNOSES + 1, 2 * DIAGNOSES + 1],
    }
    (out / "train.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


def pubmedqa(source: Path, out: Path) -> None:
    rows = [{"id": r["id"], "text": r["question"], "label": r["label"]} for r in _read(source / "pqal.jsonl")]
    _write(out / "train.jsonl", rows[:-TEST_QUESTIONS])
    _write(out / "test.jsonl", rows[-TEST_QUESTIONS:])


def support(source: Path, out: Path) -> None:
    for name, its in (("train", "tickets"), ("test", "questions")):
        _write(out / f"{name}.jsonl", _read(source / f"{its}.jsonl"))


def _read(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Bring a data set into the shape that dpicl eval reads.")
    parser.add_argument("name", choices=list(SETS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    SETS[arguments.name](arguments.folder, arguments.out)


SETS = {
    "samsum": samsum,
    "sroie": sroie,
    "sst2": sst2,
    "ddxplus": ddxplus,
    "ddxplus_spans": ddxplus_spans,
    "pubmedqa": pubmedqa,
    "support": support,
}


if __name__ == "__main__":
    main()
