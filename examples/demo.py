"""The whole service in two minutes: a private knowledge base, a signed plan, Ray Serve, and questions over HTTP.

Run it with `make demo`, or with a language model: `make demo ENGINE=vllm MODEL=smollm2`. Everything it makes lies in a
temporary folder, and it stops what it starts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import httpx
import yaml

from examples.serving import dpicl, say, serving, use_database_in
from service.cli.serve import DEFAULT_CONFIG

SUPPORT = Path(__file__).parent / "support"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["nearest_exemplar", "vllm"], default="nearest_exemplar")
    parser.add_argument(
        "--model", help="of vllm: smollm2, a folder or a Hugging Face id; unless given, a tiny one of no sense"
    )
    arguments = parser.parse_args()
    if arguments.model and arguments.engine != "vllm":
        parser.error("--model (MODEL=...) is for --engine vllm (ENGINE=vllm)")
    with tempfile.TemporaryDirectory() as folder:
        model = (arguments.model or tiny_model(Path(folder))) if arguments.engine == "vllm" else None
        use_database_in(Path(folder))

        say("A private knowledge base with a budget for its lifetime: ε = 12, δ = 2e-4")
        fields = [option for name in ("text", "queue", "desk", "reply") for option in ("--field", name)]
        fields += ["--response-field", "reply"]
        dpicl("kb", "create", "support", "--epsilon", "12", "--delta", "2e-4", "--public-size", "900", "--yes", *fields)
        dpicl("kb", "ingest", "support", str(SUPPORT / "tickets.jsonl"))

        plans = few_slots(Path(folder)) if arguments.model else SUPPORT
        for name, what in (("plan.yaml", "sort tickets"), ("replies.yaml", "answer them in words")):
            say(f"A plan to {what}: what the budget buys, seen before it is signed")
            dpicl("plan", "preview", str(plans / name))
            dpicl("plan", "sign", str(plans / name), "--yes", "--json")

        what = "Ray Serve" + (f" and vLLM with {model}" if model else "")
        options = ("--model", model) if model else ()
        if arguments.model:
            options = ("--config", str(short_answers(Path(folder), model)))
        with serving(Path(folder), *options, what=what, timeout_s=1800 if model else 120) as client:
            dpicl("budget", "--url", str(client.base_url))
            ask_questions(client)
            ask_for_words(client, WORDS[:1] if arguments.model else WORDS)
            use_up(client)
            exhaust(client)
            show_budget(client)


def ask_questions(client: httpx.Client) -> None:
    say("An analyst asks; each answer is a noisy consensus and costs one of the task's answers")
    questions = read_questions()
    right = 0
    sample = questions[:: max(1, len(questions) // 8)][:8]
    for question in sample:
        answer = post(client, "support.queue", question["text"]).raise_for_status().json()
        right += answer["label"] == question["queue"]
        print(f"  {question['text'][:76]!r}\n    → {said(answer)}  {cost(answer)}")
    print(f"  {right} of {len(sample)} as a person would have answered")

    say("The same question again costs nothing: the stored release is returned")
    answer = post(client, "support.queue", sample[0]["text"]).raise_for_status().json()
    print(f"  {sample[0]['text'][:76]!r}\n    → {said(answer)}  {cost(answer)}")
    if answer["cost"]["charged"] != 0:
        sys.exit("a repeated question was charged")


WORDS = (("page", "embedding mean"), ("topics", "joint EM"), ("rules", "PTR"))


def few_slots(folder: Path) -> Path:
    """The folder with the same plans for a language model on a CPU, which reads some hundred tokens a second."""
    for name in ("plan.yaml", "replies.yaml"):
        plan = yaml.safe_load((SUPPORT / name).read_text(encoding="utf-8"))
        tasks = {key: task for key, task in plan["tasks"].items() if key not in ("topics", "rules")}  # want many slots
        for task in tasks.values():
            if "ensemble" in task:
                task.update(ensemble=12, shots=4, slot_tokens=min(task["slot_tokens"], 400))
        (folder / name).write_text(yaml.safe_dump({**plan, "tasks": tasks}, allow_unicode=True), encoding="utf-8")
    return folder


def short_answers(folder: Path, model: str) -> Path:
    """A Serve config with the model, whose texts are short."""
    config = yaml.safe_load(DEFAULT_CONFIG.read_text(encoding="utf-8"))
    config["applications"][0]["args"]["engine"] = {"name": "vllm", "model": model, "max_answer_tokens": 32}
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


def ask_for_words(client: httpx.Client, tasks: tuple[tuple[str, str], ...]) -> None:
    say("Answers in words; the help pages are public, what the staff say to such a ticket is not")
    questions = {question["text"]: question for question in read_questions()}
    for text in (
        "Turn off the renewal, please, I do not need another year.",
        "The package was left in the rain and everything in it is crushed.",
    ):
        print(f"  {text!r}")
        print(f"    the staff's key words: {questions[text]['house_rule']} {questions[text]['keywords']}")
        for task, mechanism in tasks:
            answer = post(client, f"support.{task}", text).raise_for_status().json()
            fallback = "  FALLBACK" if answer.get("fallback") else ""
            print(f"    {task} ({mechanism}) → {answer['text']!r}{fallback}  {cost(answer)}")
            if answer.get("keywords"):
                print(f"      keywords: {', '.join(answer['keywords'])}")
            print(f"      {answer['method']}")


def use_up(client: httpx.Client) -> None:
    say("A small task is used up, and goes on answering from a release that its plan made once, at no further cost")
    task = client.get("/v1/tasks/support.triage").raise_for_status().json()
    for number in range(task["answers"] + 3):
        response = post(client, "support.triage", f"I was charged twice for subscription {number}.")
        answer = response.raise_for_status().json()
        print(f"  → {said(answer)}  {cost(answer)}")
    if answer["cost"] != {"charged": 0, "answers_left": 0, "source": "prototypes"}:
        sys.exit("a used-up task did not go on answering for free")


def exhaust(client: httpx.Client) -> None:
    say("One that makes no such release refuses once its answers are used up")
    task = client.get("/v1/tasks/support.page").raise_for_status().json()
    for number in range(task["answers_left"] + 1):
        response = post(client, "support.page", f"Where is my parcel, number {number}?")
    problem = response.json()
    print(f"  → {response.status_code} {problem['title']}: {problem['detail']}")
    if response.status_code != 402:
        sys.exit("an exhausted task was not refused")


def show_budget(client: httpx.Client) -> None:
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
    return [json.loads(line) for line in (SUPPORT / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def post(client: httpx.Client, task: str, text: str) -> httpx.Response:
    return client.post(f"/v1/tasks/{task}/answers", json={"query": text})


def said(answer: dict) -> str:
    return f"{answer['label']}, probability {answer['probability']:.2f}"


def cost(answer: dict) -> str:
    source = f", from {source}" if (source := answer["cost"].get("source")) else ""
    return f"(charged {answer['cost']['charged']}, {answer['cost']['answers_left']} left{source})"


def tiny_model(folder: Path) -> str:
    """A model for machines that cannot download one: random weights, so its answers mean nothing."""
    from examples.tiny_model import make_tiny_model

    say("A tiny language model with random weights: its answers mean nothing, everything around it is real")
    return str(make_tiny_model(folder / "tiny-model", chat=True))


if __name__ == "__main__":
    main()
