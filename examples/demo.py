"""The whole service in a few minutes: a private knowledge base, a signed plan, Ray Serve, and questions over HTTP.

Run it with `make demo`, which takes the language model SmolLM2 if it can run here; `make demo ENGINE=nearest_exemplar`
does without. Everything it makes lies in a temporary folder, and it stops what it starts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from examples.serving import dpicl, say, serving, use_database_in

SUPPORT = Path(__file__).parent / "support"
ENGINES = ("nearest_exemplar", "vllm")
SHOWN = 4
"""Questions that are shown with their text."""
WORDS = (("page", "embedding mean"), ("topics", "joint EM"), ("rules", "PTR"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--model", default="smollm2", help="of vllm: smollm2, a folder or a Hugging Face id")
    parser.add_argument("--questions", type=int, default=24, help="of which the right answers are counted, up to 50")
    parser.add_argument("--started", type=float, default=time.time(), help="when, in seconds since 1970")
    arguments = parser.parse_args()
    language_model = arguments.engine == "vllm"
    what = f"the language model {arguments.model}" if language_model else "nearest_exemplar, which is no language model"
    with tempfile.TemporaryDirectory() as folder:
        use_database_in(Path(folder))

        say("A private knowledge base with a budget for its lifetime: ε = 12, δ = 2e-4")
        fields = [option for name in ("text", "team", "desk", "reply") for option in ("--field", name)]
        fields += [] if language_model else ["--response-field", "reply"]  # whose embeddings that engine compares
        dpicl("kb", "create", "support", "--epsilon", "12", "--delta", "2e-4", "--public-size", "900", "--yes", *fields)
        dpicl("kb", "ingest", "support", str(SUPPORT / "tickets.jsonl"))

        if language_model:
            plans = {"plan-smollm2.yaml": "sort tickets, and to answer them"}
        else:
            plans = {"plan.yaml": "sort tickets", "replies.yaml": "answer them in words"}
        for name, purpose in plans.items():
            say(f"A plan to {purpose}: what the budget buys, seen before it is signed")
            dpicl("plan", "preview", str(SUPPORT / name))
            dpicl("plan", "sign", str(SUPPORT / name), "--yes", "--json")

        options = ("--model", arguments.model) if language_model else ()
        timeout_s = 1800 if language_model else 120
        with serving(Path(folder), *options, what=what, timeout_s=timeout_s) as client:
            dpicl("budget", "--url", str(client.base_url))
            ask_questions(client, what, arguments.questions, arguments.started)
            if language_model:
                ask_for_sentences(client, arguments.questions)
            else:
                ask_for_words(client)
            use_up(client)
            exhaust(client, "support.single" if language_model else "support.page")
            show_budget(client)


def ask_questions(client: httpx.Client, what: str, number: int, started: float) -> None:
    """Ask, and count what is right with the private tickets and without."""
    say(f"Which team answers a ticket? Only the tickets tell. Zero-shot is {what}, without them")
    questions = read_questions()
    sample = [questions[17 * i % len(questions)] for i in range(number)]  # each team in turn
    alone = right = 0
    began = time.monotonic()
    for done, question in enumerate(sample, start=1):
        answer = post(client, "support.team", question["text"]).raise_for_status().json()
        took_s = time.monotonic() - began
        if done == 1:
            print(f"  First private answer: {took_s:.1f} s after asking, {time.time() - started:.0f} s after the start")
        alone += answer["zero_shot"] == question["team"]
        right += answer["label"] == question["team"]
        if done <= SHOWN:
            print(f"  {question['text']!r}  (right: {question['team']})")
            print(f"    zero-shot {answer['zero_shot']}; private {said(answer)}  {cost(answer)}", flush=True)
        if done == SHOWN < number:
            print(f"  {number - done} more, about {(number - done) * took_s / done:.0f} s …", flush=True)
    print(f"  Right: {alone} of {number} zero-shot, {right} of {number} with the private tickets")
    print(f"  An answer took {took_s / number:.1f} s, and cost one of the answers that the plan grants")

    say("The same question again costs nothing: the stored release is returned")
    answer = post(client, "support.team", sample[0]["text"]).raise_for_status().json()
    print(f"  {sample[0]['text']!r}\n    → {said(answer)}  {cost(answer)}")
    if answer["cost"]["charged"] != 0:
        sys.exit("a repeated question was charged")


def ask_for_words(client: httpx.Client) -> None:
    """Ask for texts, by each mechanism."""
    say("Answers in words; the help pages are public, what the staff say to such a ticket is not")
    questions = {question["text"]: question for question in read_questions()}
    for text in (
        "Turn off the renewal, please, I do not need another year.",
        "The package was left in the rain and everything in it is crushed.",
    ):
        print(f"  {text!r}")
        print(f"    the staff's key words: {questions[text]['house_rule']} {questions[text]['keywords']}")
        for task, mechanism in WORDS:
            answer = post(client, f"support.{task}", text).raise_for_status().json()
            fallback = "  FALLBACK" if answer.get("fallback") else ""
            print(f"    {task} ({mechanism}) → {answer['text']!r}{fallback}  {cost(answer)}")
            if answer.get("keywords"):
                print(f"      keywords: {', '.join(answer['keywords'])}")
            print(f"      {answer['method']}")


def ask_for_sentences(client: httpx.Client, number: int) -> None:
    """Ask for replies that the model writes with the private tickets' say."""
    say("Whole sentences: the model writes them, and the private tickets have a say in every token")
    questions = read_questions()
    for question in (questions[0], questions[17])[:number]:
        began = time.monotonic()
        answer = post(client, "support.reply", question["text"]).raise_for_status().json()
        print(f"  {question['text']!r}\n    zero-shot {answer['zero_shot']!r}")
        print(f"    private   {answer['text']!r}\n      {cost(answer)}, {time.monotonic() - began:.1f} s", flush=True)


def use_up(client: httpx.Client) -> None:
    """Ask one task more than it has answers, where a release made once answers then."""
    say("A small task is used up, and goes on answering from a release that its plan made once, at no further cost")
    task = client.get("/v1/tasks/support.triage").raise_for_status().json()
    for number in range(task["answers"] + 3):
        response = post(client, "support.triage", f"I was charged twice for subscription {number}.")
        answer = response.raise_for_status().json()
        print(f"  → {said(answer)}  {cost(answer)}", flush=True)
    if answer["cost"] != {"charged": 0, "answers_left": 0, "source": "prototypes"}:
        sys.exit("a used-up task did not go on answering for free")


def exhaust(client: httpx.Client, name: str) -> None:
    """Ask one task more than it has answers."""
    say("One that makes no such release refuses once its answers are used up")
    task = client.get(f"/v1/tasks/{name}").raise_for_status().json()
    for number in range(task["answers_left"] + 1):
        response = post(client, name, f"Where is my parcel, number {number}?")
    problem = response.json()
    print(f"  → {response.status_code} {problem['title']}: {problem['detail']}")
    if response.status_code != 402:
        sys.exit("an exhausted task was not refused")


def show_budget(client: httpx.Client) -> None:
    """Print what is left."""
    say("What is left")
    for knowledge_base in client.get("/v1/budgets").raise_for_status().json()["knowledge_bases"]:
        print(f"  {knowledge_base['knowledge_base']}: free for further plans ε = {knowledge_base['free']['epsilon']:g}")
        for plan in knowledge_base["plans"]:
            print(f"  plan {plan['version']}: ε so far {plan['epsilon_spent']:.3f} of {plan['promised']['epsilon']:g}")
            for task in plan["tasks"]:
                if task["left"] is None:
                    print(f"    {task['task']}: its one release is {task['one_release']}, any number of answers")
                else:
                    print(f"    {task['task']}: {task['spent']} answers spent, {task['left']} left")


def read_questions() -> list[dict[str, str]]:
    """The public questions with their right answers."""
    return [json.loads(line) for line in (SUPPORT / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def post(client: httpx.Client, task: str, text: str) -> httpx.Response:
    """Ask."""
    return client.post(f"/v1/tasks/{task}/answers", json={"query": text})


def said(answer: dict[str, Any]) -> str:
    """The label, and how much speaks for it."""
    return f"{answer['label']}, score {answer['score']:.2f}"


def cost(answer: dict[str, Any]) -> str:
    """What it cost, and what is left."""
    source = f", from {source}" if (source := answer["cost"].get("source")) else ""
    return f"(charged {answer['cost']['charged']}, {answer['cost']['answers_left']} left{source})"


if __name__ == "__main__":
    main()
