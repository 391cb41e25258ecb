"""The whole service in a few minutes: a private knowledge base, a signed plan, Ray Serve, and questions over HTTP.

Run it with `make demo`, which takes the language model SmolLM2 if it can run here; `make demo ENGINE=nearest_exemplar`
does without. Everything it makes lies in a temporary folder, and it stops what it starts. `make demo KEEP=1` leaves the
service running until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import track

from accounting.plan import load_plan
from examples.brookfern.texts import HOUSE_RULES
from examples.serving import dpicl, make_key, say, serving, use_database_in

FOLDER = Path(__file__).parent / "brookfern"
ENGINES = ("nearest_exemplar", "vllm")
REPLIES = range(1, 5)
"""Questions whose replies are shown, by their number: one for each team but the first question's."""
TOLD = 2
"""So many of a house rule's three words tell it."""
WIDTH = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--model", default="smollm2", help="of vllm: smollm2, a folder or a Hugging Face id")
    parser.add_argument("--questions", type=int, default=24, help="of which the right answers are counted, up to 24")
    parser.add_argument("--started", type=float, default=time.time(), help="when, in seconds since 1970")
    parser.add_argument("--keep", action="store_true", help="leave the service running until Ctrl-C")
    arguments = parser.parse_args()
    language_model = arguments.engine == "vllm"
    model = {"smollm2": "SmolLM2"}.get(arguments.model, arguments.model) if language_model else "nearest_exemplar"
    with tempfile.TemporaryDirectory() as folder:
        use_database_in(Path(folder))
        print(f"{model} answers from the private support tickets of Brookfern, a made-up shop")
        print("for plant pots. No answer gives away what any one customer wrote.")
        prepare()
        options = ("--model", arguments.model) if language_model else ()
        with serving(Path(folder), *options, what=model, timeout_s=1800 if language_model else 300) as client:
            demonstrate(client, model, arguments.questions, arguments.started)
            if arguments.keep:
                keep(client)


def prepare() -> None:
    """A knowledge base with the tickets, and a signed plan."""
    say("A private knowledge base with a budget for its lifetime: ε = 8")
    fields = [option for name in ("text", "team", "product", "reply") for option in ("--field", name)]
    dpicl("kb", "create", "support", "--epsilon", "8", "--delta", "2e-5", "--public-size", "9000", "--yes", *fields, show=False)
    dpicl("kb", "ingest", "support", str(FOLDER / "tickets.jsonl.xz"))

    plan = FOLDER / "plan.yaml"
    budget = load_plan(plan.read_text(encoding="utf-8")).budget
    say(f"A plan spends ε = {budget.epsilon:g} of it, once and for all")
    dpicl("plan", "sign", str(plan), "--yes", show=False)


def demonstrate(client: httpx.Client, model: str, number: int, started: float) -> None:
    """Ask everything that is shown."""
    questions = [question for question in read_questions() if question["use"] == "shown"][:number]
    first, *others = questions

    say("Which team answers a ticket? No model knows, but the private tickets tell")
    began = time.monotonic()
    answer = ask(client, "team", first["text"])
    answers = [answer]
    show("ticket", first["text"])
    show(f"{model} alone", verdict(answer["zero_shot"], first["team"]))
    show("with the tickets", verdict(answer["label"], first["team"]))
    print(f"  The first private answer came {time.time() - started:.0f} s after the command.", flush=True)
    console = Console(width=WIDTH)
    label = f"  {len(others)} more tickets"
    answers += [ask(client, "team", question["text"]) for question in track(others, label, console=console)]
    took_s = (time.monotonic() - began) / len(questions)
    alone, right = (
        sum(answer[by] == question["team"] for answer, question in zip(answers, questions, strict=True))
        for by in ("zero_shot", "label")
    )
    print(f"  Right: {alone} of {number} by {model} alone, {right} of {number} with the tickets; {took_s:.1f} s each.")

    say("What do the staff reply? Each team has a house rule that only tickets tell")
    shown = [questions[at] for at in REPLIES if at < len(questions)] or [first]
    replies = [reply(client, model, question) for question in shown]
    rules = sum(told for told, _ in replies)
    print(f"  A house rule in {rules} of {len(shown)} replies; the slowest took {max(s for _, s in replies):.1f} s.")

    say("The same question again costs nothing")
    again = ask(client, "reply", shown[0]["text"])
    show("ticket", shown[0]["text"])
    show("with the tickets", f"{', '.join(again['keywords']) or '-'} (charged {again['cost']['charged']})")
    if again["cost"]["charged"] != 0:
        sys.exit("a repeated question was charged")

    say("What is left")
    show_budget(client)


def reply(client: httpx.Client, model: str, question: dict[str, str]) -> tuple[bool, float]:
    """Show a reply with the tickets and without: whether it has the house rule, and seconds."""
    began = time.monotonic()
    answer = ask(client, "reply", question["text"])
    took_s = time.monotonic() - began
    rule = set(HOUSE_RULES[question["team"]])
    show("ticket", question["text"])
    show(f"{model} alone", f"“{' '.join(answer['zero_shot'].split())}”", lines=2)
    if not answer["keywords"]:
        show("with the tickets", "no words stood out")
        return False, took_s
    words = [word.upper() if word in rule else word for word in answer["keywords"]]
    show("with the tickets", ", ".join(words))
    return len(rule & set(answer["keywords"])) >= TOLD, took_s


def keep(client: httpx.Client) -> None:
    """Wait for Ctrl-C."""
    say("The service goes on running. Ctrl-C stops it")
    print(f"  dashboard  {client.base_url}/admin/")
    print(f"  its key    {make_key('dashboard', 'admin')}")
    print(f"  ask        DPICL_URL={client.base_url} \\")
    print(f"             DPICL_API_KEY={client.headers['Authorization'].removeprefix('Bearer ')} \\")
    print("             .venv/bin/dpicl ask support.team 'Where is my parcel?'", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


def show_budget(client: httpx.Client) -> None:
    """What is left, as bars."""
    for knowledge_base in client.get("/v1/budgets").raise_for_status().json()["knowledge_bases"]:
        for plan in knowledge_base["plans"]:
            for task in plan["tasks"]:
                if task["left"] is None:
                    print(f"  {'prototypes':<12} any number of answers, from one release")
                else:
                    bar(task["task"].rpartition(".")[2].partition("@")[0], task["left"], task["answers"], "answers")
        free = knowledge_base["free"]["epsilon"]
        bar("ε", free, knowledge_base["budget"]["epsilon"], "for further plans")


def bar(name: str, left: float, of: float, what: str) -> None:
    full = round(30 * left / of)
    print(f"  {name:<12} {'█' * full}{'░' * (30 - full)}  {left:g} of {of:g} {what}")


def show(name: str, text: str, lines: int = 3) -> None:
    """A name and a text, within the width of a screen."""
    wrapped = textwrap.wrap(text, WIDTH - 22, max_lines=lines, placeholder=" …") or [""]
    print(f"    {name:<17} {wrapped[0]}" if name != "ticket" else f"  {text}")
    for line in wrapped[1:] if name != "ticket" else ():
        print(" " * 22 + line)
    sys.stdout.flush()


def verdict(label: str, right: str) -> str:
    return f"{label}, {'right' if label == right else 'wrong'}"


def read_questions() -> list[dict[str, str]]:
    """The public questions with their right answers."""
    return [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def ask(client: httpx.Client, task: str, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = (
        client.post(f"/v1/tasks/support.{task}/answers", json={"query": text}).raise_for_status().json()
    )
    return answer


if __name__ == "__main__":
    main()
