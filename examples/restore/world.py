"""A made-up clinic: patients, their symptoms, and a small language model that has learnt to diagnose them.

Sixteen made-up illnesses. What patients report (48 symptoms, private) all but decides which one it is; what is known
anyway (12 signs, kept) hardly does. So a redacted text is useless by itself, and what restores it shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def _words(text: str) -> list[str]:
    return text.split()


ILLNESSES = _words(
    "alderpox birchflu cedaritis duneague elmfever fernrot gorsepalsy heathgout ivyshakes junipox kelpsores "
    "larchlung mosschills nettlegrip oakstare pineblain"
)
REPORTED = _words(
    "fever rash thirst cramps cough vertigo nausea itching chills fatigue wheezing bruising swelling numbness "
    "tremor insomnia hoarseness palpitations drooling stiffness weakness bloating hiccups sweating twitching "
    "flushing sneezing vomiting fainting blisters cravings confusion earache toothache backache headache "
    "heartburn jaundice limping nosebleeds pallor snoring soreness squinting stammering tingling wheals yawning"
)
KNOWN = _words("smoker vegetarian sailor diabetic allergic pregnant widowed retired tall anaemic athletic asthmatic")

_OFTEN, _RARELY = 0.68, 0.015
_SIGNS, _OFTENER = 0.2, 0.5
PROMPT = "{text} Illness:"
PLACEHOLDER = "___"


class World:
    """Frequencies of each symptom with each illness."""

    def __init__(self, illnesses: int = 16, seed: int = 0):
        generator = np.random.default_rng(seed)
        self.illnesses, self.symptoms = ILLNESSES[:illnesses], REPORTED[: 3 * illnesses]
        self.reported = np.full((illnesses, len(self.symptoms)), _RARELY)
        # Each symptom belongs to two illnesses, and each illness has six.
        for _ in range(2):
            order = generator.permutation(len(self.symptoms)).reshape(illnesses, -1)
            np.put_along_axis(self.reported, order, _OFTEN, axis=1)
        self.known = np.full((illnesses, len(KNOWN)), _SIGNS)
        for row in self.known:
            row[generator.choice(len(KNOWN), 2, replace=False)] = _OFTENER

    def patients(self, count: int, seed: int) -> list[dict[str, object]]:
        """A number of patients, as lines of a data set."""
        generator = np.random.default_rng(seed)
        rows: list[dict[str, object]] = []
        while len(rows) < count:
            illness = int(generator.integers(len(self.illnesses)))
            reported = _some(self.symptoms, self.reported[illness], generator)
            if not reported:
                continue
            text = f"Known: {_list(_some(KNOWN, self.known[illness], generator))}. Reports: {_list(reported)}."
            row = {"group": f"patient-{seed}-{len(rows)}", "text": text, "spans": reported}
            rows.append(row | {"answer": self.illnesses[illness]})
        return rows

    def best_guesses(self, rows: Sequence[dict[str, object]], *, redacted: bool) -> float:
        """Share of rows that the best possible guess gets right (the law is known)."""
        right = 0
        for row in rows:
            words = set(str(row["text"]).replace(",", " ").replace(".", " ").split())
            score = _log_likelihood(KNOWN, self.known, words)
            if not redacted:
                score = score + _log_likelihood(self.symptoms, self.reported, words)
            right += self.illnesses[int(score.argmax())] == row["answer"]
        return right / len(rows)


def redacted(row: dict[str, object]) -> str:
    """A patient's text without what they report."""
    return str(row["text"]).split("Reports:")[0] + f"Reports: {PLACEHOLDER}."


def train_model(folder: Path, rows: Sequence[dict[str, object]], *, layers: int = 4, steps: int = 500) -> Path:
    """A small Llama that reads patients' texts, a quarter of them redacted, and names illnesses."""
    torch.manual_seed(0)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=8,
            head_dim=32,
            max_position_embeddings=128,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    generator = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    begun = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 30) * (0.5 + 0.5 * np.cos(np.pi * step / steps))
        chosen = [rows[at] for at in generator.integers(len(rows), size=64)]
        texts = [redacted(row) if generator.random() < 0.25 else str(row["text"]) for row in chosen]
        batch = tokenizer([PROMPT.format(text=text) for text in texts], padding=True, return_tensors="pt")
        ends = batch["attention_mask"].sum(dim=1) - 1
        wanted = torch.tensor([tokenizer.convert_tokens_to_ids(str(row["answer"])) for row in chosen])
        logits = model(**batch).logits[torch.arange(len(chosen)), ends]
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"model: step {step + 1} of {steps}, loss {loss.item():.3f}, {time.monotonic() - begun:.0f} s")
    model.save_pretrained(folder)
    return folder


def write(file: Path, rows: Sequence[dict[str, object]]) -> Path:
    """Rows as JSON Lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _tokenizer() -> PreTrainedTokenizerFast:
    special = ["<begin>", "<end>", "<pad>", "<unknown>"]
    words = [*special, *":,.", PLACEHOLDER, "Known", "Reports", "Illness", "nothing", *KNOWN, *REPORTED, *ILLNESSES]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<begin>",
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unknown>",
        padding_side="right",
    )


def _some(words: Sequence[str], shares: np.ndarray, generator: np.random.Generator) -> list[str]:
    return [words[at] for at in generator.permutation(len(words)) if generator.random() < shares[at]]


def _list(words: Sequence[str]) -> str:
    return ", ".join(words) or "nothing"


def _log_likelihood(words: Sequence[str], shares: np.ndarray, present: set[str]) -> np.ndarray:
    there = np.array([word in present for word in words])
    return np.log(np.where(there, shares, 1 - shares)).sum(axis=1)
