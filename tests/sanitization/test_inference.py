"""InferDPT as a library: what each model is shown."""

from pathlib import Path

import pytest

from sanitization.inference import InferDpt, extraction_prompt
from sanitization.text import open_sanitizer
from tests.sanitization.made_up import letter_words


def test_the_steps(tmp_path: Path) -> None:
    words, shown = letter_words(60), []
    sanitizer = open_sanitizer("medoid_rr", words, 0.01, tmp_path)
    text = f"{words.words[0]} zebrafish 7"

    def remote(prompt: str) -> str:
        shown.append(prompt)
        return f"  {prompt.upper()} "

    answer = InferDpt(sanitizer.sanitize, remote, lambda prompt: f" {prompt}", "Go on:").ask(text)
    assert shown == [f"Go on:\n\n{answer.sanitized.text}"]
    assert "zebrafish" not in shown[0]
    assert answer.generation == shown[0].upper()
    assert answer.text == extraction_prompt(text, answer.generation)
    assert answer.document()["sanitized"]["epsilon_text"] == pytest.approx(0.02, rel=0.01)


def test_nothing_in_a_text_is_a_part_of_the_prompt() -> None:
    prompt = extraction_prompt("A {generation} {text}", "B {text}")
    assert '"Prefix Text": A {generation} {text}\n' in prompt
    assert '"Perturbed Generation": B {text}\n' in prompt


def test_the_text_stands_once() -> None:
    with pytest.raises(ValueError, match="once"):
        InferDpt(lambda text: pytest.fail(text), str, str, "{text} {text}")
