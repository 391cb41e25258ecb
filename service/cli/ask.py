"""``dpicl ask`` and ``dpicl batch``: an analyst's questions, over HTTP."""

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.progress import Task as ProgressTask
from rich.text import Text

from service.cli.batch_answers import BatchAnswers, as_json
from service.cli.gathering import Options
from service.cli.output import Json, Task, print_json, print_text, state_folder
from service.cli.reading import read_whole
from service.connections import http_options
from service.engines.retry_after import retry_after_s
from service.operations.wording import right_in
from service.sources.reading import Reading, column_by_field

AbstainBelow = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Abstain where the label's score or probability is lower than this. [default: as signed]"
    ),
]
_TIMEOUT_S = 180.0
_RETRIES = 5
_SHORTEST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
"""Quotas are by the minute."""
_WRITTEN = ("answer", "zero_shot", "score", "probability", "keywords", "sentences", "fallback", "release", "task")
"""The fields that ``batch`` adds to a row."""


class Service(Options):
    """The service to ask, and the key to ask with."""

    url: Annotated[str, typer.Option(envvar="DPICL_URL")] = "http://127.0.0.1:8080"
    """Address of the service."""
    key: Annotated[str, typer.Option(envvar="DPICL_API_KEY", show_default=False)] = ""
    """An analyst's API key."""

    def checked_key(self) -> str:
        """The key.

        Raises:
            ValueError: there is no key, or it cannot be one.
        """
        key = self.key.strip()
        if not key:
            raise ValueError(
                "an API key is needed: set DPICL_API_KEY, or pass --key (an admin makes one: dpicl keys create)"
            )
        if not key.isascii() or not key.isprintable() or set(key) & set(" '\""):
            raise ValueError("the API key has a character that no key has: copy it once more, without quotation marks")
        return key

    def checked_url(self) -> str:
        """The address.

        Raises:
            ValueError: ``url`` is not an address of HTTP, or has more in it.
        """
        if set(self.url) & set("@?#"):  # not repeated here: it may hold a password
            raise ValueError("--url: leave out what stands before an @ or after a ? or #; the API key shows who asks")
        try:
            url = httpx.URL(self.url)
            known = url.scheme in ("http", "https") and url.host and (url.port is None or 0 < url.port < 1 << 16)
        except httpx.InvalidURL:
            known = False
        if not known or " " in self.url:
            raise ValueError(f"--url: {self.url!r} is not the address of a service, such as http://127.0.0.1:8080")
        return self.url


class RefusedError(ValueError):
    """The service refused; the message has its problem details."""

    def __init__(self, problem: dict[str, Any]):
        super().__init__(f"{problem.get('title', 'refused')}: {problem.get('detail', '')}")


def connect(service: Service) -> httpx.Client:
    """A client of the service."""
    headers = {"Authorization": f"Bearer {service.checked_key()}"}
    url = service.checked_url()
    return httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, **http_options(url))


def ask(
    task: Task,
    query: Annotated[str, typer.Argument()],
    *,
    service: Service,
    abstain_below: AbstainBelow = None,
    json: Json = False,
) -> None:
    """Ask one question. A repeated question is answered for free.

    Args:
        query: The text to answer; for a task of several fields, a JSON object of them. Before a text that begins with
            a hyphen, write --.
    """
    with connect(service) as client:
        answer = _post(client, task, query, abstain_below)
    if json:
        print_json(answer)
        return
    print_text(_output(answer) or "(abstained)", "bold")
    if "probability" in answer:
        print_text(f"probability {answer['probability']:.2f}")
    if "score" in answer:
        print_text(f"score {answer['score']:.2f} (not a probability: the plan was fitted to no labelled rows)")
    if "measured" in answer:
        print_text(right_in(**answer["measured"]))
    if answer.get("keywords"):
        print_text(f"keywords: {', '.join(answer['keywords'])}")
    if "method" in answer:
        print_text(answer["method"], "dim")
    on = f" on the topic {answer['topic']}" if "topic" in answer else ""
    print_text(f"{_cost(answer['cost'])} of {answer['task'].partition('#')[0]}{on}", "dim")
    if _first_shown(service.url, notice := answer["engine"]["notice"]):
        print_text(notice, "dim")


def _first_shown(url: str, notice: str) -> bool:
    """Whether the user sees this notice of this address for the first time; a file records it."""
    shown = state_folder() / "shown" / hashlib.sha256(f"{url}\n{notice}".encode()).hexdigest()
    if shown.exists():
        return False
    with suppress(OSError):  # a notice that cannot be recorded is shown again
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.touch()
    return True


def batch(
    task: Task,
    file: Annotated[Path, typer.Argument(exists=True)],
    out: Annotated[Path, typer.Option("--out", "-o")],
    *,
    columns: Annotated[list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN")] = None,
    reading: Reading,
    service: Service,
    abstain_below: AbstainBelow = None,
) -> None:
    """Answer a file of questions, with a progress bar.

    If it is interrupted, run the same command again: it continues where it stopped, also if rows were added or moved.
    Fields that the task does not use (such as an id) are kept beside the answer, and so are keywords and scores;
    the answer of an abstention is null. Nothing of the input is overwritten: where it has a field `answer`, the answer
    is called `dpicl_answer`, and so on.

    Args:
        file: File of rows with the query's fields, in any format of `dpicl kb ingest`.
        out: File for the answers, in the order of the input: CSV if its name ends in .csv, else JSON Lines. Beside CSV
            a file of JSON Lines is kept, by which an interrupted run goes on.
        columns: Field of the question and the column of another name to take it from. Repeat it. A name with a dot
            leads into JSON: text=message.body.
    """
    with connect(service) as client:
        wanted = checked(client.get(f"/v1/tasks/{task}"), "query_fields")["query_fields"]
        column = {name: name for name in wanted} | _mapped(columns or [], wanted)
        numbered = _questions(file, column, reading)
        written = _names({name for _, row in numbered for name in row})
        rows, lost = _as_json([row for _, row in numbered])
        kept = out.with_name(f"{out.name}.jsonl") if out.suffix.lower() == ".csv" else out
        if out.exists() and not kept.exists():
            raise ValueError(f"{out} is there already, and not by `dpicl batch`: choose another --out")
        answers = BatchAnswers(kept, rows, written, task)
        costs: list[dict[str, Any]] = []
        topical = False
        console = Console(stderr=True)
        with Progress(
            *Progress.get_default_columns(), _Charged(), console=console, disable=not console.is_terminal
        ) as bar:
            shown = bar.add_task(task, total=len(answers.open_places), charged=0)
            for place in answers.open_places:
                try:
                    answer = _post(client, task, {name: rows[place][column[name]] for name in wanted}, abstain_below)
                except RefusedError as error:
                    number = numbered[place][0]
                    raise ValueError(f"{file}: row {number}: {error} ({len(answers)} answered, in {kept})") from None
                costs.append(answer["cost"])
                topical |= "topic" in answer
                said = {**answer, "answer": _output(answer), "release": answer["id"]}
                answers.add(place, {called: said[name] for name, called in written.items() if name in said})
                bar.update(shown, advance=1, charged=sum(cost["charged"] for cost in costs))
        answers.sort()
        if kept != out:
            answers.write_csv(out)
    if lost:
        typer.echo(f"Not kept, since they cannot be read in each row: {', '.join(map(repr, sorted(lost)))}", err=True)
    typer.echo(f"{len(rows)} answers in {out}{_together(costs, topical)}")


def _mapped(pairs: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """The columns that the user names, by field.

    Raises:
        ValueError: one of the pairs is not one, or names a field that the question does not have.
    """
    try:
        named = column_by_field(pairs)
    except ValueError as error:
        raise ValueError(f"--map: {error}") from None
    if unknown := sorted(set(named) - set(wanted)):
        raise ValueError(f"--map: the question has no field {', '.join(unknown)}, but {', '.join(wanted)}")
    return named


def _questions(file: Path, column: Mapping[str, str], reading: Reading) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a file with their numbers; arguments and errors as of :func:`read_whole`, with columns by field."""
    from exemplar_store.errors import MissingColumnError  # which takes a second, and `dpicl ask` does without

    try:
        return read_whole(file, list(column.values()), reading)
    except MissingColumnError as error:
        if column.get(str(error.field)) == error.field:
            error.propose_column(str(error.field))
        raise


class _Charged(ProgressColumn):
    """The number of answers that this run was charged for."""

    def render(self, task: ProgressTask) -> Text:
        return Text(f"{task.fields['charged']:,} charged")


def _as_json(rows: Sequence[Mapping[str, object]]) -> tuple[list[dict[str, Any]], set[str]]:
    """Rows as they can be written, and the columns that cannot in each."""
    written = [as_json(row) for row in rows]
    return [row for row, _ in written], {name for _, lost in written for name in lost}


def _together(costs: Sequence[Mapping[str, Any]], topical: bool) -> str:
    """The cost of this run's answers; each topic has answers left of its own, so none are named."""
    if not costs:
        return ""
    charged = sum(cost["charged"] for cost in costs)
    left = "" if topical else f"; {_left(costs[-1])} left"
    return f": {charged} charged, {len(costs) - charged} free{left}"


def _names(columns: Collection[str]) -> dict[str, str]:
    """The names in the output of the fields in :data:`_WRITTEN`.

    Raises:
        ValueError: the input has all the names that a field could have.
    """
    names = {name: f"dpicl_{name}" if name in columns else name for name in _WRITTEN}
    if taken := sorted(set(names.values()) & set(columns)):
        raise ValueError(f"the input has fields {', '.join(taken)}, which the answers would overwrite: rename them")
    return names


def _output(answer: dict[str, Any]) -> str | None:
    """The label or the text, as fitted to the question if it was; None for an abstention."""
    return answer.get("label", answer.get("realigned", answer.get("text")))


def _cost(cost: dict[str, Any]) -> str:
    if source := cost.get("source"):
        paid = f"free, from {source}"
    else:
        paid = "1 answer charged" if cost["charged"] else "free, answered before"
    return f"{paid}; {_left(cost)} left"


def _left(cost: Mapping[str, Any]) -> object:
    return "any number" if cost["answers_left"] is None else cost["answers_left"]


def _post(client: httpx.Client, task: str, query: str | dict[str, str], abstain_below: float | None) -> dict[str, Any]:
    """Ask; if the service is busy or its engine away, ask again after its ``Retry-After``, a few times."""
    body = {"query": query} | ({} if abstain_below is None else {"abstain_below": abstain_below})
    content = dumps(body)  # in ASCII, so that what is not text reaches the service, which refuses it
    for _ in range(_RETRIES):
        headers = {"Content-Type": "application/json"}
        response = client.post(f"/v1/tasks/{task}/answers", content=content, headers=headers)
        if response.status_code not in (429, 503) or "Retry-After" not in response.headers:
            break
        time.sleep(max(retry_after_s(response.headers["Retry-After"], _LONGEST_WAIT_S), _SHORTEST_WAIT_S))
    return checked(response, "id", "task", "cost", "engine")


def checked(response: httpx.Response, *members: str) -> dict[str, Any]:
    """The body of a response of the service.

    Args:
        response: the response.
        members: names of the members that its body always has.

    Raises:
        RefusedError: it refused.
        ValueError: the response is not one of this service.
    """
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.is_success and isinstance(body, dict) and body.keys() >= set(members):
        return body
    if response.is_error and isinstance(body, dict) and "title" in body:
        raise RefusedError(body)
    moved = f" and names {response.headers['Location']}" if "Location" in response.headers else ""
    raise ValueError(
        f"{response.url} answered {response.status_code}{moved}, and not as this service does: is --url right?"
    )
