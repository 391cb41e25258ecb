"""The whole service in a few minutes: a private knowledge base, a signed plan, Ray Serve, and questions over HTTP.

Run it with `make demo`, which takes the language model SmolLM2 if it can run here; `make demo ENGINE=nearest_exemplar`
does without. Everything it makes lies in a temporary folder, and it stops what it starts. `make demo KEEP=1` leaves the
service running until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import lzma
import signal
import sys
import tempfile
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console
from rich.progress import track

from accounting.plans.plan import load_plan
from aggregation.keywords import keywords
from examples.brookfern.texts import HOUSE_RULES
from examples.serving import dpicl, heading, make_key, serving, use_database_in
from service.cli.serve import DEFAULT_CONFIG

FOLDER = Path(__file__).parent / "brookfern"
ENGINES = ("nearest_exemplar", "vllm")
REPLIES = range(5)
"""Questions whose replies are shown, by their number: one for each team."""
TOLD = 2
"""Number of a house rule's three words that a sentence must have to count as right."""
AT_ONCE = 4
"""Questions under way at once. Each waits for a grain of its own, but the engine works on one at a time."""
AT_MOST_S = 180
"""Seconds for which the questions that are counted may keep the engine busy. A slow processor is asked fewer."""
FEWEST = 6
ALONE = {"votes": "the slots' votes alone", "classifier": "the one-time release alone", "label": "both together"}
WITHOUT, WITH = "without the tickets", "with the tickets"
WIDTH = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--model", default="smollm2", help="model for vllm: smollm2, a folder or a Hugging Face id")
    parser.add_argument("--questions", type=int, default=24, help="number of questions to score, up to 24")
    parser.add_argument("--tickets", type=int, help="number of tickets to use, for a quick look at the demo itself")
    parser.add_argument("--started", type=float, default=time.time(), help="time of the start, in seconds since 1970")
    parser.add_argument("--keep", action="store_true", help="leave the service running until Ctrl-C")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # what it started is stopped, too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore for what runs in the background
    language_model = arguments.engine == "vllm"
    model = {"smollm2": "SmolLM2"}.get(arguments.model, arguments.model) if language_model else "nearest_exemplar"
    with tempfile.TemporaryDirectory() as folder:
        use_database_in(Path(folder))
        about = f"{model} answers from the private tickets of Brookfern, a made-up shop for plant pots,"
        print(textwrap.fill(f"{about} and no answer gives away what any one customer wrote.", WIDTH), flush=True)
        create()
        fill = partial(fill_and_sign, tickets_in(Path(folder), arguments.tickets))
        options = ("--config", str(config_for(arguments.model, Path(folder)))) if language_model else ()
        with serving(
            Path(folder), *options, what=model, timeout_s=1800 if language_model else 300, meanwhile=fill
        ) as client:
            demonstrate(client, arguments.questions, arguments.started)
            if arguments.keep:
                keep(client)


def tickets_in(folder: Path, number: int | None) -> Path:
    """The file of tickets, or one of its first ones in the folder."""
    if number is None:
        return FOLDER / "tickets.jsonl.xz"
    with lzma.open(FOLDER / "tickets.jsonl.xz") as file:
        (folder / "tickets.jsonl").write_bytes(b"".join(islice(file, number)))
    return folder / "tickets.jsonl"


def create() -> None:
    """A knowledge base."""
    heading("A private knowledge base with a budget for its lifetime: ε = 8")
    size = ("--epsilon", "8", "--delta", "2e-5", "--public-size", "9000", "--yes")
    fields = [option for name in ("text", "team", "product", "reply") for option in ("--field", name)]
    shortest = ("--max-exemplar-bytes", "512")  # of a ticket; answers take as long as with the longest
    dpicl("kb", "create", "support", *size, *shortest, *fields, show=False)


def fill_and_sign(tickets: Path) -> None:
    """Give the knowledge base its tickets, and a signed plan."""
    dpicl("kb", "ingest", "support", str(tickets))
    plan = FOLDER / "plan.yaml"
    budget = load_plan(plan.read_text(encoding="utf-8")).budget
    heading(f"A plan spends ε = {budget.epsilon:g} of it, once and for all")
    dpicl("plan", "sign", str(plan), "--yes", show=False)


def config_for(model: str, folder: Path) -> Path:
    """The service's own config, but for the engine: answers are short, since each takes as long as the longest."""
    config = yaml.safe_load(DEFAULT_CONFIG.read_text(encoding="utf-8"))
    config["applications"][0]["args"]["engine"] = {"name": "vllm", "model": model, "max_answer_tokens": 40}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder / "serve.yaml"


def demonstrate(client: httpx.Client, number: int, started: float) -> None:
    """Ask everything that is shown."""
    every = [question for question in read_questions() if question["use"] == "shown"]
    first, *others = every[:number]

    heading("Which team answers a ticket? No model knows, but the private tickets show it")
    answer = ask(client, "team", first["text"])
    show_ticket(first["text"])
    show(WITHOUT, verdict(answer["zero_shot"], first["team"]))
    show("votes, with noise", ", ".join(f"{label} {votes:.0f}" for label, votes in most_first(answer["votes"])))
    show(WITH, verdict(answer["label"], first["team"]))
    print(f"  The first private answer came {time.time() - started:.0f} s after the command.", flush=True)
    largest_s = latency(client)["largest_s"]
    others = others[: max(FEWEST - 1, int(AT_MOST_S / largest_s))]
    questions = [first, *others]
    if (asked := len(questions)) < min(number, len(every)):
        print(f"  {asked} of {len(every)} tickets are asked about: the processor takes {largest_s:.0f} s for each.")
    began = time.monotonic()
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        labels = pool.map(lambda question: ask(client, "team", question["text"]), others)
        caption, console = f"  {len(others)} more tickets", Console(width=WIDTH)
        answers = [answer, *track(labels, caption, total=len(others), console=console)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for all of them
    took_s = (time.monotonic() - began) / max(1, len(others))
    for each, question in zip(answers, questions, strict=True):
        each["classifier"] = ask(client, "classifier", question["text"])["label"]
        each["votes"] = most_first(each["votes"])[0][0]
    count = Counter(
        by
        for by in ("zero_shot", *ALONE)
        for each, question in zip(answers, questions, strict=True)
        if each[by] == question["team"]
    )
    print(f"  Right: {count['zero_shot']} of {asked} {WITHOUT}; with them")
    for by, what in ALONE.items():
        print(f"    {count[by]:>2} of {asked} by {what}")
    print(f"  {how_asked(client)}; {took_s:.1f} s each, {AT_ONCE} at once.")

    heading("What do the staff reply? Each team has a house rule that only tickets show")
    replies = [reply(client, questions[at]) for at in REPLIES if at < len(questions)]
    rules = sum(told for told, _ in replies)
    print(f"  A house rule in {rules} of {len(replies)} replies; the slowest took {max(s for _, s in replies):.1f} s.")

    heading("The same question again costs nothing")
    again = ask(client, "reply", first["text"])
    show(WITH, f"{again['text']} (charged {again['cost']['charged']})")
    if again["cost"]["charged"] != 0:
        sys.exit("a repeated question was charged")

    heading("One topic is used up while others go on: each product's customers pay alone")
    use_up_a_topic(client, [question["text"] for question in every[:3]])

    heading("What is left")
    show_budget(client)


def how_asked(client: httpx.Client) -> str:
    """How the language model's slots are asked, and how long that takes."""
    slots = load_plan((FOLDER / "plan.yaml").read_text(encoding="utf-8")).tasks["team"].ensemble
    measured = latency(client)
    work_s = measured["typical_s"] or measured["largest_s"]
    return f"{slots} slots are asked in parallel, in {work_s:.2g} s"


def latency(client: httpx.Client) -> dict[str, float]:
    """The measured seconds of the work on one answer."""
    measured: dict[str, float] = client.get("/v1/tasks/support.team").raise_for_status().json()["latency"]
    return measured


def most_first(votes: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(votes.items(), key=lambda label: -label[1])


def reply(client: httpx.Client, question: dict[str, str]) -> tuple[bool, float]:
    """Show a reply without the tickets and with them: whether it has the house rule, and how many seconds it took."""
    began = time.monotonic()
    answer = ask(client, "reply", question["text"])
    took_s = time.monotonic() - began
    show_ticket(question["text"])
    show(WITHOUT, " ".join(answer["zero_shot"].split()))
    if answer["fallback"]:
        show(WITH, "no sentence stood out")
        return False, took_s
    show(WITH, answer["text"])
    rule = set(HOUSE_RULES[question["team"]])
    return any(len(rule & keywords(sentence)) >= TOLD for sentence in answer["sentences"]), took_s


def use_up_a_topic(client: httpx.Client, texts: list[str]) -> None:
    """Ask twice about one product, which has one answer, and then about another product."""
    statuses = []
    for text, product in zip(texts, ("Moss Mini", "Moss Mini", "Fern One"), strict=True):
        response = post(client, "by_product", {"text": text, "product": product})
        statuses.append(response.status_code)
        body = response.json()
        said = f"{body['label']}, the last answer on {product}" if response.is_success else body["title"].lower()
        show(product, said)
    if statuses != [200, 402, 200]:
        sys.exit(f"one topic was to be used up and another to go on, and the statuses are {statuses}")


def keep(client: httpx.Client) -> None:
    """Wait for Ctrl-C."""
    heading("The service goes on running. Ctrl-C stops it")
    print(f"  dashboard  {client.base_url}/admin/")
    print(f"  its key    {make_key('dashboard', 'admin')}")
    print(f"  ask        DPICL_URL={client.base_url} \\")
    print(f"             DPICL_API_KEY={client.headers['Authorization'].removeprefix('Bearer ')} \\")
    print("             .venv/bin/dpicl ask support.team 'Where is my parcel?'", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()


def show_budget(client: httpx.Client) -> None:
    """Show what is left of the budget, as bars; for a task with topics, on all of them together."""
    for knowledge_base in client.get("/v1/budgets").raise_for_status().json()["knowledge_bases"]:
        answers: dict[str, list[tuple[int, int]]] = {}
        for task in (task for plan in knowledge_base["plans"] for task in plan["tasks"]):
            if task["left"] is not None:  # else any number, from a one-time release
                name = task["task"].rpartition(".")[2].partition("@")[0]
                answers.setdefault(name.partition("#")[0], []).append((task["left"], task["answers"]))
        for name, counted in answers.items():
            bar(name, sum(left for left, _ in counted), sum(of for _, of in counted), "answers")
        bar("ε", knowledge_base["free"]["epsilon"], knowledge_base["lifetime"]["epsilon"], "for further plans")


def bar(name: str, left: float, of: float, what: str) -> None:
    full = round(30 * left / of)
    print(f"  {name:<12} {'█' * full}{'░' * (30 - full)}  {left:g} of {of:g} {what}")


def show_ticket(text: str) -> None:
    print("\n".join(textwrap.wrap(f"“{text}”", WIDTH, initial_indent="  ", subsequent_indent="   ")), flush=True)


def show(by: str, text: str) -> None:
    """Show a text and its source, in two lines at most."""
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"    {by:<22}", subsequent_indent=" " * 26, max_lines=2, placeholder=" …"
    )
    print("\n".join(lines), flush=True)


def verdict(label: str, right: str) -> str:
    return f"{label}, {'right' if label == right else 'wrong'}"


def read_questions() -> list[dict[str, str]]:
    """The public questions with their right answers."""
    return [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def ask(client: httpx.Client, task: str, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = post(client, task, text).raise_for_status().json()
    return answer


def post(client: httpx.Client, task: str, query: str | dict[str, str]) -> httpx.Response:
    """The service's response. Where too many questions wait for a slow engine, it is asked again when it states."""
    while True:
        response = client.post(f"/v1/tasks/support.{task}/answers", json={"query": query})
        if response.status_code != 429 or "Retry-After" not in response.headers:
            return response
        time.sleep(float(response.headers["Retry-After"]))


if __name__ == "__main__":
    main()
