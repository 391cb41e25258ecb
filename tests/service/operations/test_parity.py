"""The capabilities of the service, and the faces that offer them.

A command without a line here fails the tests, and so does an operation, shell command or page that no line names.
"""

import pkgutil
from importlib import import_module
from typing import NamedTuple, get_args

import pytest
import typer
from fastapi.routing import APIRoute

import service.operations
from service.cli.lazy import EveryCommand
from service.gateway.dashboard.app import PAGES
from service.operations.command import COMMANDS
from service.operations.roles import Actor, NotAllowedError, Right, may
from service.operations.services import Services
from service.records.api_keys import Role
from service.serving.web import create_app


class No(str):
    """Why a face lacks a capability."""

    __slots__ = ()


class Faces(NamedTuple):
    """The places of a capability: an operation of REST, a command of ``dpicl``, a page of the dashboard."""

    rest: str
    shell: str
    page: str


_KB, _HOME = "/v1/knowledge-bases/{knowledge_base}", "/knowledge-bases/{name}"
_COHORTS, _PLANS = f"{_KB}/cohorts", f"{_KB}/plans"
_FILES = No("it reads or writes files of the service's machine")
_MEASURES = No("it measures on files, with an engine of its own")
_ASKS = No("programs ask it over HTTP")
_HAS_ID = No("an answer comes with its release's id, and a repeat is free")

_CHOOSES = No("callers name what they want")
_LEADS = No("it leads through pages")
_LISTS_WHOLE = No("the list shows them whole")
_HAVE_ROWS = No("a dry run reports what would be stored, and its caller has the rows")
_OTHER_ROWS = No("`exemplars.ingest` takes its rows")
_SHOWS = No("it is drawn")
_TEXT = No("it takes a plan that is written")
_AS_PLANS, _AS_TRIALS = No("`plans.sign` signs it"), No("`trials.try_` tries it")
_AS_MEASURING = No("`measuring.measure` measures it")
_AS_BUDGETS = No("`budgets.read` has the figures")

CAPABILITIES = {
    "accuracies.record": Faces(_MEASURES, "eval", _MEASURES),
    "answers.ask": Faces("POST /v1/tasks/{task}/answers", "ask", "POST /ask"),
    "answers.list_own": Faces(_HAS_ID, _HAS_ID, "GET /ask"),
    "answers.receipt": Faces(
        "GET /v1/releases/{release_id}/receipt", "receipt get", No("an export proves all releases")
    ),
    "audit.checkpoint": Faces("GET /v1/audit/checkpoint", "audit checkpoint", "GET /audit/checkpoint"),
    "audit.events": Faces("GET /v1/audit", No("an export has all of them"), "GET /audit"),
    "audit.export": Faces("GET /v1/audit/export", "audit export", "GET /audit/export"),
    "audit.replay": Faces(
        No("a client that does not trust the service replays an export"), "audit verify", "POST /audit/verify"
    ),
    "audit.filters": Faces(_CHOOSES, _CHOOSES, "GET /audit"),
    "audit.describe": Faces(No("it gives events as they are"), No("an export has all of them"), "GET /audit"),
    "budgets.read": Faces("GET /v1/budgets", "budget", "GET /plans"),
    "budgets.close_cohort": Faces(
        f"POST {_COHORTS}/{{cohort}}/close", "cohort close", f"POST {_HOME}/cohorts/{{number:number}}/close"
    ),
    "budgets.list_cohorts": Faces(f"GET {_COHORTS}", "cohort list", f"GET {_HOME}/cohorts"),
    "budgets.open_cohort": Faces(f"POST {_COHORTS}", "cohort open", f"POST {_HOME}/cohorts"),
    "exemplars.forget": Faces(f"DELETE {_KB}/units/{{unit:path}}", "kb forget", f"POST {_HOME}/forget"),
    "exemplars.forget_many": Faces(_FILES, "kb forget", _FILES),
    "exemplars.ingest": Faces(No("there it is a whole file"), "kb ingest", f"POST {_HOME}/exemplars"),
    "budgets.join_group": Faces(
        "PUT /v1/groups/{group}/knowledge-bases/{knowledge_base}", "group add", "POST /groups/{group}/join"
    ),
    "budgets.list_groups": Faces("GET /v1/groups", "group list", "GET /groups"),
    "budgets.make_group": Faces("POST /v1/groups", "group create", "POST /groups"),
    "keys.create": Faces("POST /v1/keys", "keys create", "POST /keys"),
    "keys.example": Faces(No("`GET /v1/models` lists tasks"), No("`budget` lists tasks"), "POST /keys"),
    "keys.limit": Faces("PATCH /v1/keys/{key_id}", "keys limit", "POST /keys/{id}/limits"),
    "keys.list_": Faces("GET /v1/keys", "keys list", "GET /keys"),
    "keys.revoke": Faces("DELETE /v1/keys/{key_id}", "keys revoke", "POST /keys/{id}/revoke"),
    "keys.rotate": Faces("POST /v1/keys/{key_id}/rotate", "keys rotate", "POST /keys/{id}/rotate"),
    "keys.standing": Faces(No("the list shows it"), No("the list shows it"), "GET /keys/{id}"),
    "knowledge_bases.archive": Faces(f"POST {_KB}/archive", "kb archive", f"POST {_HOME}/archive"),
    "knowledge_bases.change": Faces(f"PATCH {_KB}", "kb remote-engine", f"POST {_HOME}/remote-engine"),
    "knowledge_bases.create": Faces("POST /v1/knowledge-bases", "kb create", "POST /new-knowledge-base"),
    "knowledge_bases.delete": Faces(f"DELETE {_KB}", "kb delete", f"POST {_HOME}/delete"),
    "knowledge_bases.describe": Faces(f"GET {_KB}", No("the list shows it"), f"GET {_HOME}/settings"),
    "knowledge_bases.list_": Faces("GET /v1/knowledge-bases", "kb list", No("the overview shows all of them")),
    "overview.first_steps": Faces(_LEADS, _LEADS, "GET /"),
    "overview.read": Faces(_AS_BUDGETS, _AS_BUDGETS, "GET /"),
    "overview.read_one": Faces(_AS_BUDGETS, _AS_BUDGETS, f"GET {_HOME}"),
    "measuring.measure": Faces(f"POST {_PLANS}/measure", "plan preview", f"POST {_HOME}/plan/measure"),
    "plan_drafts.measure": Faces(_AS_MEASURING, _AS_MEASURING, f"POST {_HOME}/plan/measure"),
    "plan_drafts.open_": Faces(_TEXT, _TEXT, f"POST {_HOME}/plan"),
    "plan_drafts.price": Faces(_TEXT, _TEXT, f"POST {_HOME}/plan"),
    "plan_drafts.sign": Faces(_AS_PLANS, _AS_PLANS, f"POST {_HOME}/plan/sign"),
    "plan_drafts.try_": Faces(_AS_TRIALS, _AS_TRIALS, f"POST {_HOME}/plan/try"),
    "plans.export": Faces(_FILES, "plan export", _FILES),
    "plans.list_": Faces(f"GET {_PLANS}", "plan list", f"GET {_HOME}/plans"),
    "plans.preview": Faces(f"POST {_PLANS}", "plan preview", f"POST {_HOME}/plan"),
    "plans.release": Faces(
        No("signing makes it; this mends what a crash left"), "plan release", No("signing makes it")
    ),
    "plans.retire": Faces(
        f"POST {_PLANS}/{{version}}/retire", "plan retire", f"POST {_HOME}/plans/{{version:number}}/retire"
    ),
    "plans.retired": Faces(f"GET {_PLANS}", "plan list", f"GET {_HOME}/plans"),
    "plans.sign": Faces(f"POST {_PLANS}", "plan sign", f"POST {_HOME}/plan/sign"),
    "publishing.publish": Faces(_FILES, "restore publish", _FILES),
    "answers.list_releases": Faces("GET /v1/releases", No("`audit export` has all of them"), f"GET {_HOME}/releases"),
    "answers.read_release": Faces(
        "GET /v1/releases/{release_id}", No("`ask` again is free"), No("the list shows them whole")
    ),
    "restoring.answer": Faces("POST /v1/restore/answers", "restore ask", _ASKS),
    "restoring.bundle": Faces("GET /v1/restore/bundles/{bundle}", "restore preview", "GET /bundles/{bundle}"),
    "restoring.list_bundles": Faces("GET /v1/restore/bundles", No("callers name one"), "GET /bundles"),
    "sanitising.sanitize": Faces("POST /v1/sanitize", "sanitize text", "POST /sanitising"),
    "sanitising_preview.show": Faces(_SHOWS, _SHOWS, "POST /sanitising"),
    "signed_plans.read": Faces(_LISTS_WHOLE, _LISTS_WHOLE, f"GET {_HOME}/plans/{{version:number}}"),
    "signed_plans.text": Faces(_LISTS_WHOLE, _LISTS_WHOLE, f"GET {_HOME}/plan"),
    "starting_plans.begin": Faces(_TEXT, _TEXT, f"GET {_HOME}/plan"),
    "statement.draw_up": Faces(f"GET {_KB}/statement", "kb statement", f"GET {_HOME}/statement"),
    "uploads.ingest_file": Faces(_OTHER_ROWS, _OTHER_ROWS, f"POST {_HOME}/exemplars"),
    "uploads.look": Faces(_HAVE_ROWS, _HAVE_ROWS, f"POST {_HOME}/exemplars/look"),
    "uploads.ingest_sent": Faces(f"POST {_KB}/exemplars", _OTHER_ROWS, _OTHER_ROWS),
    "usage.read": Faces(_AS_BUDGETS, _AS_BUDGETS, f"GET {_HOME}/usage"),
    "tasks.describe": Faces("GET /v1/tasks/{task}", No("`plan list` shows what was signed"), f"GET {_HOME}/plans"),
    "tasks.find": Faces("GET /v1/models/{model}", No("it is the same, in another shape"), f"GET {_HOME}/plans"),
    "tasks.list_": Faces("GET /v1/tasks", "plan list", f"GET {_HOME}/plans"),
    "trials.try_": Faces(No("there it is tried once it is signed"), "plan try", f"POST {_HOME}/plan/try"),
    "trials.try_signed": Faces(
        "POST /v1/tasks/{task}/preview", No("`plan try` takes its file"), No("there it is tried before it is signed")
    ),
}

FOR_OTHERS = {
    **dict.fromkeys(("answers.ask", "answers.list_own", "restoring.answer", "sanitising.sanitize"), Right.ASK),
    **dict.fromkeys(("plan_drafts.try_", "trials.try_", "trials.try_signed"), Right.TRY),
    **dict.fromkeys(("audit.events", "audit.export", "audit.replay", "answers.list_releases"), Right.AUDIT),
    "answers.receipt": Right.SEE,
    "audit.checkpoint": Right.AUDIT,
    **dict.fromkeys(("budgets.read", "budgets.list_cohorts", "budgets.list_groups", "answers.read_release"), Right.SEE),
    **dict.fromkeys(("knowledge_bases.describe", "knowledge_bases.list_"), Right.SEE),
    **dict.fromkeys(("plans.export", "plans.list_", "plans.retired"), Right.SEE),
    **dict.fromkeys(("audit.filters", "audit.describe", "statement.draw_up"), Right.AUDIT),
    **dict.fromkeys(("overview.read", "overview.read_one", "signed_plans.read", "usage.read"), Right.BROWSE),
    **dict.fromkeys(("restoring.bundle", "restoring.list_bundles"), Right.SEE),
    **dict.fromkeys(("tasks.describe", "tasks.find", "tasks.list_"), Right.SEE),
}

ALSO = {
    "probes and pages that explain problems": {
        "GET /livez",
        "GET /healthz",
        "GET /readyz",
        *(f"HEAD {path}" for path in ("/healthz", "/readyz", "/version")),
        "GET /version",
        "GET /metrics",
        "GET /problems",
        "GET /problems/{kind}",
        "GET /",
        "GET /docs",
    },
    "asking, in another shape": {
        "POST /v1/chat/completions",
        "POST /v1/responses",
        "GET /v1/models",
        "batch",
    },
    "running the service": {
        "serve",
        "migrate",
        "ledger status",
        "ledger acknowledge",
        "ledger backup",
        "encryption rewrap",
        "encryption reencrypt",
        "audit key",
        "audit cosign",
    },
    "measuring, training and extracting, on the machine of whoever asks": {
        "attack",
        "sanitize audit",
        "sanitize attack",
        "sanitize ask",
        "sanitize fit",
        "restore train",
        "receipt verify",
        "plan candidates",
    },
    "signing in, and how pages look": {
        "GET /sign-in",
        "POST /sign-in",
        "GET /sign-in/provider",
        "GET /sign-in/callback",
        "POST /sign-out",
        "POST /theme",
    },
    "forms and views of what is above": {
        "GET /new-knowledge-base",
        "GET /plans",
        f"GET {_HOME}",
        f"GET {_HOME}/plans/{{version:number}}",
        f"GET {_HOME}/usage",
        f"GET {_HOME}/exemplars",
        f"GET {_HOME}/plan",
        f"POST {_HOME}/plan/curves",
        f"POST {_HOME}/plan/confirm",
        f"POST {_HOME}/plan/file",
        "GET /audit/verify",
        "GET /sanitising",
    },
}
"""Places on the faces that are not capabilities of their own."""


def _operations(services: Services) -> set[str]:
    return {
        f"{method} {route.path}"
        for route in create_app(services).routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def _shell() -> set[str]:
    found = set()
    for name, place in EveryCommand.lazy.items():
        loaded = place.load()
        if isinstance(loaded, typer.Typer):
            named = (one.name or one.callback.__name__ for one in loaded.registered_commands if one.callback)
            found |= {f"{name} {sub.replace('_', '-')}" for sub in (*named, *getattr(loaded.info.cls, "lazy", ()))}
        else:
            found.add(name)
    return found


def _pages() -> set[str]:
    return {
        f"{method} {route.path}"
        for page in PAGES
        for route in page.pages.routes
        for method in (route.methods or ()) - {"HEAD"}
    }


@pytest.fixture(scope="module", autouse=True)
def every_command() -> None:
    for module in pkgutil.iter_modules(service.operations.__path__):
        import_module(f"service.operations.{module.name}")


def test_every_command_has_a_line() -> None:
    assert set(COMMANDS) == set(CAPABILITIES)


def test_a_command_needs_the_right_to_decide_unless_it_is_named() -> None:
    assert {
        name: command.needs for name, command in COMMANDS.items() if command.needs is not Right.DECIDE
    } == FOR_OTHERS


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_role_without_the_right_is_refused(name: str) -> None:
    command = COMMANDS[name]
    for role in get_args(Role):
        if not may(role, command.needs):
            with pytest.raises(NotAllowedError):
                command(Actor("x", "x", "key", role))


@pytest.mark.parametrize("face", Faces._fields)
def test_a_face_has_what_is_named_and_nothing_else(services: Services, face: str) -> None:
    has = {"rest": lambda: _operations(services), "shell": _shell, "page": _pages}[face]()
    named = {place for faces in CAPABILITIES.values() if not isinstance(place := getattr(faces, face), No)}
    others = set().union(*ALSO.values())
    assert named <= has
    assert has <= named | others
