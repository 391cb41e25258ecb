"""The command line, as typed."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from service.cli.output import whole_id
from service.records.database import open_database
from service.sources.counts import ONE_UNIT, UNIT_A_ROW
from tests.service.shell import Shell, create


@pytest.mark.parametrize("error", [KeyError, OSError])  # before Python 3.13, and since
def test_an_account_without_a_name_is_a_number(dpicl: Shell, monkeypatch: pytest.MonkeyPatch, error) -> None:
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=error))
    dpicl.ok("keys", "create", "ana")
    created, _ = dpicl.ok("audit", "export").splitlines()
    assert json.loads(created)["body"]["by"] == f"uid-{os.getuid()}"


def test_groups_are_made_joined_and_listed(dpicl: Shell) -> None:
    create(dpicl)
    assert "Made group care with ε = 4" in dpicl.ok("group", "create", "care", "--epsilon", 4, "--delta", 1e-4, "--yes")
    assert "name" in dpicl.fails("group", "create", "Day Care", "--epsilon", 4, "--delta", 1e-4)
    assert dpicl("group", "add", "care", "toys")[0] == 1  # the confirmation is refused
    assert "ε = 4" in dpicl.ok("group", "add", "care", "toys", "--yes")
    assert json.loads(dpicl.ok("group", "list", "--json"))[0]["knowledge_bases"] == ["toys"]
    for shown in (("group", "list"), ("budget",)):
        assert "care" in dpicl.ok(*shown)


def test_no_id_or_address_is_cut_and_ids_may_be_written_by_how_they_begin(
    dpicl: Shell, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(dpicl)
    name = "a-task-whose-name-is-as-long-as-somebody-needs-it"
    plan_file.write_text(plan_file.read_text().replace("colour", name))
    dpicl.ok("plan", "sign", plan_file, "--yes")
    made = [json.loads(dpicl.ok("keys", "create", f"ana {n}", "--scope", f"toys.{name}", "--json")) for n in range(2)]
    monkeypatch.setenv("COLUMNS", "40")
    shown = dpicl.ok("keys", "list")
    for key in made:
        assert key["id"] in shown
    assert f"toys.{name}" in shown
    assert f"toys.{name}@1" in dpicl.ok("budget")

    first, second = (key["id"] for key in made)
    dpicl.ok("keys", "limit", first[:8], "--quota", 7)
    token = dpicl.ok("keys", "rotate", first[:13], "--yes").strip()
    assert token.startswith("dpicl_")
    assert dpicl.ok("keys", "revoke", second[:8], "--yes") == f"revoked {second}\n"
    listed = {key["id"]: key for key in json.loads(dpicl.ok("keys", "list", "--json"))}
    assert (listed[first]["quota"], bool(listed[first]["rotated_at"]), bool(listed[first]["revoked_at"])) == (
        7,
        True,
        False,
    )
    assert listed[second]["revoked_at"]
    for unknown in (first[:3], "", f"{first}0", "zzzz"):
        assert "no API key" in dpicl.fails("keys", "revoke", unknown)


def test_the_beginning_of_several_ids_is_refused() -> None:
    known = ["abcd-1", "abcd-2", "abcd-22", "bbbb"]
    assert whole_id("abcd-2", known) == "abcd-2"  # an id, although another begins with it
    assert (whole_id("bbbb", known), whole_id("abcd-22", known), whole_id("x", known)) == ("bbbb", "abcd-22", "x")
    with pytest.raises(ValueError, match="abcd-1, abcd-2, abcd-22"):
        whole_id("abcd", known)


def test_a_plan_that_is_signed_is_signed_again_only_on_demand(dpicl: Shell, plan_file: Path) -> None:
    create(dpicl)
    plan_file.write_text(plan_file.read_text().replace("epsilon: 4", "epsilon: 1").replace("1.0e-4", "1.0e-5"))
    assert "Signed as version 1" in dpicl.ok("plan", "sign", plan_file, "--yes")
    for more in ((), ("--yes",), ("--yes", "--again", "2")):
        assert "--again 1" in dpicl.fails("plan", "sign", plan_file, *more)
    assert [plan["version"] for plan in json.loads(dpicl.ok("plan", "list", "toys", "--json"))] == [1]
    assert "Signed as version 2" in dpicl.ok("plan", "sign", plan_file, "--yes", "--again", "1")


def test_cohorts_are_opened_closed_and_listed(dpicl: Shell) -> None:
    create(dpicl)
    opening = ("cohort", "open", "toys", "--epsilon", 5, "--delta", "2e-4", "--public-size")
    assert dpicl(*opening, 60)[0] == dpicl("cohort", "close", "toys", 1)[0] == 1
    assert "Opened cohort 2 of toys with ε = 5" in dpicl.ok(*opening, 120, "--yes")
    assert "Cohort 2: lifetime ε = 5" in dpicl.ok("budget")
    assert "Closed cohort 1 of toys" in dpicl.ok("cohort", "close", "toys", 1, "--yes")
    listed = json.loads(dpicl.ok("cohort", "list", "toys", "--json"))
    assert [(one["public_size"], one["closed_at"] is None) for one in listed] == [(60, False), (120, True)]
    assert "120" in dpicl.ok("cohort", "list", "toys")


def test_a_weak_promise_is_asked_about(dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question: asked.append(question) or len(asked) < 3)
    weak = ("kb", "create", "weak", "--epsilon", 1000, "--delta", 0.5, "--public-size", 3)
    assert dpicl(*weak)[0] == 1
    assert [question.partition(" is ")[0] for question in asked] == ["ε = 1000", "δ = 0.5", "A public size of 3"]
    assert json.loads(dpicl.ok("kb", "list", "--json")) == []
    dpicl.ok(*weak, "--yes")
    assert len(asked) == 3


@pytest.mark.slow
def test_a_first_session(dpicl: Shell, tmp_path: Path, plan_file: Path) -> None:
    create(dpicl)
    toys = tmp_path / "toys.csv"
    toys.write_text("owner,text,label,price\n" + "".join(f"o{i},toy {i},red,{i}\n" for i in range(12)))
    report = json.loads(dpicl.ok("kb", "ingest", "toys", toys, "--unit-id", "owner", "--json"))
    stored = {
        "exemplars": 12,
        "units": 12,
        "already_there": 0,
        "replaced": 0,
        "returned": 0,
        "skipped_units": 0,
        "skipped_rows": 0,
        "ignored_fields": ["price"],
    }
    assert {**report, **stored, "rows": 12} == report
    assert (report["values"], report["notice"]) == ({"label": {"red": 12}}, UNIT_A_ROW)
    assert "12 were there already" in dpicl.ok("kb", "ingest", "toys", toys, "--unit-id", "owner")

    short = dpicl.ok("plan", "preview", plan_file)
    assert "20 answers" in short
    assert "rests on this" not in short
    shown = dpicl.ok("plan", "preview", plan_file, "--details", "--plot", tmp_path / "plan.png")
    (hint,) = {*short.splitlines()} - {*shown.splitlines()}
    assert "--details" in hint
    assert "Gaussian noise of" in shown
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "rests on this" in shown
    assert "colour: alternatives" in shown
    described = json.loads(dpicl.ok("plan", "preview", plan_file, "--json"))
    assert [one["answers"] for one in described["alternatives"]["colour"]] == [20, 2, 200, None, None, None]
    signed = json.loads(dpicl.ok("plan", "sign", plan_file, "--yes", "--json"))
    assert signed["signed"]["tasks"] == ["toys.colour@1"]
    (budget,) = json.loads(dpicl.ok("budget", "--json"))
    assert budget["promised"] == {"epsilon": 4.0, "delta": 1e-4}
    assert "toys.colour@1" in dpicl.ok("budget")

    assert dpicl.ok("kb", "forget", "toys", "o3", "--yes").strip() == "Deleted 1 exemplars"
    assert "no unit" in dpicl.fails("kb", "forget", "toys", "o3", "--yes")
    again = ("kb", "ingest", "toys", toys, "--unit-id", "owner")
    assert "Forgotten units left out: 1, with 1 rows" in dpicl.ok(*again, "--skip-forgotten")
    assert "no unit" in dpicl.fails("kb", "forget", "toys", "o3", "--yes")
    assert "come back: 1\n" in dpicl.ok("kb", "ingest", "toys", toys, "--unit-id", "owner")
    assert dpicl.ok("kb", "forget", "toys", "o4\u200b", "--yes").strip() == "Deleted 1 exemplars"


def test_keys(dpicl: Shell, plan_file: Path) -> None:
    create(dpicl)
    dpicl.ok("plan", "sign", plan_file, "--yes")
    assert "did you mean 'colour'" in dpicl.fails("keys", "create", "ana", "--scope", "toys.color")
    assert dpicl.ok("keys", "create", "ana").startswith("dpicl_")
    scoped = ("--scope", "toys.colour", "--scope", "toys", "--expires-in-days", "90")
    made = json.loads(dpicl.ok("keys", "create", "form", *scoped, "--quota", 5, "--json"))
    assert (made["role"], made["scope"], made["quota"]) == ("analyst", ["toys.colour", "toys"], 5)
    assert made["expires_at"] > made["created_at"]
    assert "scope" in dpicl.fails("keys", "create", "a", "--role", "admin", *scoped)
    assert "name a limit" in dpicl.fails("keys", "limit", made["id"])
    limited = dpicl.ok("keys", "limit", made["id"], "--rate-per-minute", 9)
    assert "0 of 5 answers, 9 requests per minute" in limited, "the quota was not named, and stays"
    assert "0 of 7 answers, 9 requests" in dpicl.ok("keys", "limit", made["id"], "--quota", 7)
    assert "not both" in dpicl.fails("keys", "limit", made["id"], "--quota", 7, "--no-quota")
    assert "0 of any answers, 9 requests" in dpicl.ok("keys", "limit", made["id"], "--no-quota")
    assert "any number of requests" in dpicl.ok("keys", "limit", made["id"], "--no-rate-per-minute")
    assert dpicl.ok("keys", "rotate", made["id"], "--overlap-hours", "1", "--yes").startswith("dpicl_")
    assert "toys.colour" in dpicl.ok("keys", "list")
    dpicl.ok("keys", "revoke", made["id"], "--yes")
    _, listed = json.loads(dpicl.ok("keys", "list", "--json"))
    assert (listed["quota"], bool(listed["rotated_at"]), bool(listed["revoked_at"])) == (None, True, True)
    assert "nobody" in dpicl.fails("keys", "revoke", "nobody")


def test_a_remote_engine_is_allowed_and_forbidden(dpicl: Shell) -> None:
    dpicl.ok(
        "kb", "create", "open", "--epsilon", 1, "--delta", "1e-5", "--public-size", 600, "--remote-engine", "--yes"
    )
    for change, status, allowed in (((), 2, True), (("--forbid",), 0, False), (("--allow",), 1, False)):
        assert dpicl("kb", "remote-engine", "open", *change)[0] == status
        assert json.loads(dpicl.ok("kb", "list", "--json"))[0]["remote_engine"] is allowed
    assert "may be shown" in dpicl.ok("kb", "remote-engine", "open", "--allow", "--yes")
    assert "allowed" in dpicl.ok("kb", "list")


def test_an_empty_knowledge_base_is_deleted(dpicl: Shell, plan_file: Path) -> None:
    for _ in range(2):
        create(dpicl)
        assert dpicl("kb", "delete", "toys")[0] == 1  # the confirmation is refused
        assert "Deleted toys" in dpicl.ok("kb", "delete", "toys", "--yes")
    assert "no knowledge base" in dpicl.fails("kb", "delete", "toys", "--yes")
    create(dpicl)
    dpicl.ok("plan", "sign", plan_file, "--yes")
    assert "signed plans" in dpicl.fails("kb", "delete", "toys", "--yes")
    assert json.loads(dpicl.ok("kb", "list", "--json"))[0]["name"] == "toys"


def test_a_knowledge_base_is_archived_only_on_confirmation(dpicl: Shell) -> None:
    create(dpicl)
    assert dpicl("kb", "archive", "toys")[0] == 1
    assert json.loads(dpicl.ok("kb", "list", "--json"))[0]["archived_at"] is None
    assert "Archived toys" in dpicl.ok("kb", "archive", "toys", "--yes")
    assert json.loads(dpicl.ok("kb", "list", "--json"))[0]["archived_at"]


@pytest.mark.slow
def test_a_preview_needs_no_knowledge_base(dpicl: Shell, plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "dpicl kb create" in dpicl.fails("plan", "preview", plan_file)
    monkeypatch.setenv("DPICL_DATABASE_URL", "sqlite:////nowhere/dpicl.sqlite")
    monkeypatch.delenv("DPICL_ENCRYPTION_KEY", raising=False)
    assert "20 answers" in dpicl.ok("plan", "preview", plan_file, "--public-size", 500)


@pytest.mark.model
def test_data_are_taken_from_where_they_are(dpicl: Shell, tmp_path: Path) -> None:
    create(dpicl)
    file = tmp_path / "toys.csv"
    file.write_bytes("owner;what;colour\na;Bär;1\nb;Ente;2\n".encode("cp1252"))
    columns = ("--map", "text=what", "--map", "label=colour")
    assert "field 'unit_id'" in dpicl.fails("kb", "ingest", "toys", file)
    plain = ("kb", "ingest", "toys", file, *columns, "--unit-id", "owner", "--dry-run")
    refused = dpicl.fails(*plain)
    for said in ("toys.csv: line 2", "'a;Bär;1'", "--encoding cp1252"):
        assert said in refused
    _, out, err = dpicl(*plain, "--encoding", "cp1252")
    assert "cp1252 with ';'" in err
    assert "would be 2 exemplars of 2" in out
    assert "Stored 2" in dpicl.ok(*plain[:-1], "--encoding", "cp1252")
    mapped = ("kb", "ingest", "toys", file, "--encoding", "cp1252", "--unit-id", "owner")
    assert "'owner', 'what', 'colour'; name the column to take it from (--map text=COLUMN)" in dpicl.fails(*mapped)
    file.write_bytes("Toys of March\na;b;c\n1;2;3\n".encode("cp1252"))
    assert "row 2 names them, which has more cells, skip those before it (--skip-lines 1)" in dpicl.fails(*mapped[:4])
    file.write_bytes("owner\nBär\n".encode("cp1252"))
    forget = ("kb", "forget", "toys", "--listed", file, "--unit-id", "owner", "--yes")
    assert "--encoding cp1252" in dpicl.fails(*forget)
    assert "Deleted 0 exemplars of 0 units; 1 " in dpicl.ok(*forget, "--encoding", "cp1252")
    file.write_text("owner\n0\n")
    assert "not both" in dpicl.fails("kb", "forget", "toys", "1", "--listed", file)
    assert "--from-sql" in dpicl.fails("kb", "forget", "toys")
    assert "write FIELD=COLUMN" in dpicl.fails("kb", "ingest", "toys", file, "--map", "colour")
    assert "columns" in dpicl.fails("kb", "ingest", "toys", file, "--map", "colour=label")
    for neither in ((), (file, "--query", "SELECT 1"), ("--from-sql", "sqlite://"), ("--query", "SELECT 1")):
        assert "name a file" in dpicl.fails("kb", "ingest", "toys", *neither)


@pytest.mark.slow
def test_labels_are_counted_before_anything_is_stored(dpicl: Shell, tmp_path: Path, plan_file: Path) -> None:
    create(dpicl)
    toys, labels = tmp_path / "toys.csv", ["red", "red", "Red", "red ", "bleu", "re\u0301d"]
    toys.write_text("unit_id,text,label\n" + "".join(f"ann,toy {i},{label}\n" for i, label in enumerate(labels * 2)))
    shown = dpicl.ok("kb", "ingest", "toys", toys, "--dry-run")
    assert "label: red 4, Red 2, 'red ' 2, bleu 2, 're\\u0301d' 2" in shown
    assert ONE_UNIT in shown
    assert "toy 1" not in shown

    shown = " ".join(dpicl.ok("plan", "preview", plan_file, "--rows", toys).split())
    for said in (
        "colour: 8 of 12 rows",
        "red 8, blue 0 No row has blue.",
        "4 rows have none",
        "bleu 2, 're\\u0301d' 2",
    ):
        assert said in shown
    preview = ("plan", "preview", plan_file, "--public-size", 60, "--json")
    assert "labels" not in json.loads(dpicl.ok(*preview))
    toys.write_text(toys.read_text().replace("label", "colour", 1))
    assert "field 'label'" in dpicl.fails(*preview, "--rows", toys)
    found = json.loads(dpicl.ok(*preview, "--rows", toys, "--map", "label=colour"))["labels"]["colour"]
    assert found == {"labels": {"red": 8, "blue": 0}, "others": {"bleu": 2, "re\u0301d": 2}}
    toys.write_text(toys.read_text().replace("unit_id", "owner", 1).replace("colour", "label", 1))
    assert "--unit-id" in dpicl.fails(*preview, "--rows", toys)
    assert json.loads(dpicl.ok(*preview, "--rows", toys, "--unit-id", "owner"))["labels"]["colour"] == found
    numbered = tmp_path / "toys.jsonl"
    numbered.write_text("".join(f'{{"unit_id": {i}, "text": "a toy", "label": 7}}\n' for i in range(3)))
    assert "(--numbers-as-text)" in dpicl.fails(*preview, "--rows", numbered)
    shown = json.loads(dpicl.ok(*preview, "--rows", numbered, "--numbers-as-text"))["labels"]["colour"]
    assert shown["others"] == {"7": 3}


@pytest.mark.slow
def test_a_preview_measures_the_plan_and_its_proposals_on_rows_that_it_holds_out(
    dpicl: Shell, tmp_path: Path, plan_file: Path
) -> None:
    toys = tmp_path / "toys.csv"
    drawn = [(i, colour) for i in range(40) for colour in ("red", "blue")]
    toys.write_text("person,text,label\n" + "".join(f"u{i},a {colour} toy {i},{colour}\n" for i, colour in drawn))
    plan_file.write_text(plan_file.read_text().replace("vote: hard", "vote: hard, decide: argmax"))
    preview = ("plan", "preview", plan_file, "--public-size", 60, "--rows", toys, "--unit-id", "person")
    found = json.loads(dpicl.ok(*preview, "--json"))
    planned, *changes = found["held_out"]
    assert (planned["task"], planned["rows"], planned["exemplars"]) == ("colour", 16, 60)
    assert [one["change"] for one in changes] == list(range(len(found["proposals"])))
    assert len(changes) > 0
    shown = " ".join(dpicl.ok(*preview).split())
    assert shown.count("on 16 held-out rows, zero-shot") == 1 + len(changes)
    assert "unknown without labelled rows" not in shown
    assert "unknown without labelled rows" in " ".join(dpicl.ok(*preview[:5]).split())


@pytest.mark.slow
def test_data_are_taken_from_a_database(dpicl: Shell, tmp_path: Path) -> None:
    create(dpicl)
    shop = sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None)
    shop.execute("CREATE TABLE toys (owner INTEGER, what TEXT, colour INTEGER, price REAL)")
    shop.executemany("INSERT INTO toys VALUES (?, ?, ?, ?)", [(i % 4, f"toy {i}", i, i / 7) for i in range(9)])
    database = ("toys", "--from-sql", f"sqlite:///{tmp_path}/shop.sqlite", "--query")
    columns = ("--map", "text=what", "--map", "label=colour", "--map", "unit_id=owner")
    sql = (*database, "SELECT * FROM toys", *columns)
    assert "field 'colour'" in dpicl.fails("kb", "ingest", *sql)
    report = json.loads(dpicl.ok("kb", "ingest", *sql, "--numbers-as-text", "--json"))
    stored = {"exemplars": 9, "units": 4, "already_there": 0, "replaced": 0, "returned": 0, "ignored_fields": ["price"]}
    stored |= {"skipped_units": 0, "skipped_rows": 0}
    assert report == {**stored, "rows": 9, "incomplete": {}, "values": {}, "notice": None}

    shop.execute("UPDATE toys SET what = 'toy changed', price = 9 WHERE owner = 3")
    shop.close()
    changed = "SELECT * FROM toys WHERE owner IN (SELECT owner FROM toys WHERE price > :since)"
    newer = ("kb", "ingest", *database, changed, *columns, "--numbers-as-text", "--replace", "--cursor", "price")
    assert "--cursor-file" in dpicl.fails(*newer)
    newer = (*newer, "--cursor-file", tmp_path / "shop.cursor", "--since", 8 / 7)
    assert "they replace 2" in dpicl.ok(*newer, "--dry-run")
    assert not (tmp_path / "shop.cursor").exists()
    assert "Stored 2 exemplars of 0 new units" in dpicl.ok(*newer)
    assert json.loads((tmp_path / "shop.cursor").read_text()) == {"price": 9}
    assert "Stored 0 exemplars" in dpicl.ok(*newer)

    gone = ("kb", "forget", *database, "SELECT owner FROM toys WHERE owner > 1 UNION SELECT 9", "--unit-id", "owner")
    assert "Deleted 4 exemplars of 2 units; 1 " in dpicl.ok(*gone, "--yes")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["ask", "toys.colour", "x"], "API key"),
        (["ask", "toys.colour", "x", "--key", "k", "--url", "http://127.0.0.1:9"], "does not answer"),
        (["kb", "create", "Toys!", "--epsilon", "1", "--delta", "1e-5", "--public-size", "500"], "name"),
        (["kb", "create", "toys", "--epsilon", "0", "--delta", "1e-5", "--public-size", "500"], "epsilon"),
        (["kb", "remote-engine", "nowhere", "--allow"], "no database at"),
        (["budget"], "no database at"),
        (["plan", "preview", "missing.yaml"], "missing.yaml"),
        (["nonsense"], "No such command"),
    ],
)
def test_mistakes_are_explained_in_a_line(dpicl: Shell, args: list[str], message: str) -> None:
    assert message in dpicl.fails(*args)


@pytest.mark.parametrize(
    "args", [("kb", "remote-engine", "nowhere", "--allow"), ("kb", "forget", "nowhere", "u", "-y")]
)
def test_a_knowledge_base_that_is_not_there_is_named(dpicl: Shell, args: tuple[str, ...]) -> None:
    create(dpicl)
    assert "'nowhere'" in dpicl.fails(*args)


def test_only_the_first_commands_of_a_session_create_a_database(dpicl: Shell, tmp_path: Path) -> None:
    """A mistyped path is reported, and no file is created."""
    for command in (["budget"], ["kb", "list"], ["keys", "list"], ["audit", "verify"], ["migrate", "--check"]):
        assert "no database at" in dpicl.fails(*command)
    assert not list(tmp_path.glob("*.sqlite*"))
    dpicl.ok("keys", "create", "ana")
    assert "ana" in dpicl.ok("keys", "list")


def test_another_programs_database_is_left_as_it_is(dpicl: Shell, tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(file)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{file}")
    for command in (["budget"], ["ledger", "status"]):
        assert "another program" in dpicl.fails(*command)
    with closing(sqlite3.connect(file)) as shop:
        assert shop.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]
    assert not list(tmp_path.glob("*witness*"))


def test_a_mistyped_witness_is_not_made_by_looking(dpicl: Shell, tmp_path: Path) -> None:
    create(dpicl)
    dpicl.monkeypatch.setenv("DPICL_WITNESS_URL", f"sqlite:///{tmp_path / 'mistyped.sqlite'}")
    assert "mistyped.sqlite is not there" in dpicl.fails("budget")
    assert not (tmp_path / "mistyped.sqlite").exists()


@pytest.mark.slow
def test_an_empty_postgresql_database_stays_empty(dpicl: Shell, new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", url)
    dpicl.monkeypatch.setenv("DPICL_WITNESS_URL", "none")
    assert "another program" in dpicl.fails("budget")
    with open_database(url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:secret@127.0.0.1:9/x", "Is it running"),
        ("sqlite:///{}", "not a database"),
        ("var/dpicl.sqlite", "sqlite:///FILE"),
        ("postgresql://u:a:secret@x:secret@127.0.0.1/x", "is not a URL"),
        ("postgresql://u:p@secret@127.0.0.1/x", "%40 for @"),
        ("mysql://u:secret@127.0.0.1/x", "'mysql' is not supported"),
    ],
)
def test_a_database_that_cannot_be_used_is_a_line_without_its_password(
    dpicl: Shell, monkeypatch: pytest.MonkeyPatch, plan_file: Path, url: str, message: str
) -> None:
    monkeypatch.setenv("DPICL_DATABASE_URL", url.format(plan_file))
    told = dpicl.fails("kb", "list")
    assert message in told
    assert "secret" not in told


def test_no_key_no_start(dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPICL_DEVELOPMENT")
    assert "openssl rand" in dpicl.fails("keys", "create", "ana")
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", "short")
    assert "encryption key is" in dpicl.fails("keys", "create", "ana")
    monkeypatch.setenv("DPICL_LATENCY_GRAIN_MS", "many")
    assert "DPICL_LATENCY_GRAIN_MS" in dpicl.fails("budget")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--synthetic",)])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        *((missing, "no model at") for missing in ("/nonexistent", "./missing", "no.gguf", "a/b/c")),
        ("empty", "config.json"),
        *((file, "is not a model") for file in ("notes.txt", "damaged.gguf")),
    ],
)
def test_a_model_that_is_not_there_is_missed_before_ray_starts(
    dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, message: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "damaged.gguf"):
        (tmp_path / name).write_text("hello")
    monkeypatch.chdir(tmp_path)
    for what in ("service.serving.local_ray.start", "service.cli.serve._made_up_data"):
        monkeypatch.setattr(what, lambda **_: pytest.fail("it begins"))
    said = dpicl.fails("serve", "--model", model, "--port", 18765, *options)
    assert message in said
    assert len(said.splitlines()) <= 2  # one is the warning about the development key


def test_nothing_is_served_with_a_grain_of_zero(dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_LATENCY_GRAIN_MS", "0")
    message = dpicl.fails("serve", "--model", "m")
    assert "DPICL_LATENCY_GRAIN_MS" in message
    assert "DPICL_LATENCY_UNPADDED=true" in message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("applications: [", "not valid YAML"),
        ("[]", "is a mapping"),
        (
            "applications: [{name: a, import_path: 'service.serving.application:build', num_replicsa: 2}]",
            "num_replicsa",
        ),
        ("applications: [{name: a, import_path: 'service.serving.application:build', args: {engin: x}}]", "engin"),
        ("htpp_options: {}\napplications: []", "htpp_options"),
        (
            "applications: [{name: a, import_path: 'service.serving.web:b', deployments: [{name: b, x: 1}]}]",
            "applications.0.deployments.0.x",
        ),
    ],
)
def test_unknown_keys_of_a_serve_config_are_refused(dpicl: Shell, tmp_path: Path, config: str, message: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(config)
    assert message in dpicl.fails("serve", "--config", file)


@pytest.mark.slow
def test_the_audit_trail_is_exported_and_replayed_without_the_database(dpicl, tmp_path, plan_file, monkeypatch):
    create(dpicl)
    dpicl.ok("plan", "sign", plan_file, "--yes")
    dpicl.ok("keys", "create", "ana", "--quota", "5")
    export = tmp_path / "audit.ndjson"
    dpicl.ok("audit", "export", export)
    assert dpicl.ok("audit", "export") == export.read_text()
    head = json.loads(dpicl.ok("audit", "verify", "--json"))["head"]

    monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/elsewhere/none.sqlite")
    shown = dpicl.ok("audit", "verify", export, "--head", head)
    assert "3 events, nothing wrong" in shown
    assert "toys@1" in shown
    assert not (tmp_path / "elsewhere").exists()
    lines = export.read_text().splitlines(keepends=True)
    export.write_text("".join(lines[:1] + lines[2:]))
    for head in ((), ("--head", "0" * 64)):
        status, out, _ = dpicl("audit", "verify", export, *head)
        assert (status, "WRONG" in out) == (1, True)


def test_a_budget_without_a_key_or_a_database_names_both_ways(dpicl: Shell) -> None:
    dpicl.monkeypatch.setenv("DPICL_URL", "http://127.0.0.1:9")
    said = dpicl.fails("budget")
    assert "DPICL_URL names a service, which needs an API key" in said
    assert "set DPICL_API_KEY" in said
    assert "Without DPICL_URL the command reads the database" in said
    assert "--url names a service" in dpicl.fails("budget", "--url", "http://127.0.0.1:8")
    for command in (["kb", "list"], ["keys", "list"], ["audit", "export"], ["group", "list"]):
        assert "does not ask the one at DPICL_URL" in dpicl.fails(*command)
    dpicl.monkeypatch.delenv("DPICL_URL")
    said = dpicl.fails("budget")
    assert "no database at" in said
    assert "or set DPICL_URL and DPICL_API_KEY to ask a running service" in said
    assert "DPICL_URL" not in dpicl.fails("kb", "list")


def test_errors_lead_through_nested_json(dpicl: Shell, tmp_path: Path) -> None:
    create(dpicl)
    file = tmp_path / "interviews.jsonl"
    file.write_text(
        '{"id": 1, "employee": {"id": "e1"}, "why": {"text": "pay"}, "tags": ["a"], "label": "red"}\n'
        '{"id": 2, "employee": {"id": "e2"}, "why": {"text": null}, "tags": ["a"], "label": "blue"}\n'
    )
    ingest = ["kb", "ingest", "toys", file]
    for option, said in (
        ((), "which has 'id', 'employee', 'why', 'tags', 'label'; name the one with the person's id (--unit-id COLUMN"),
        (("--unit-id", "employee.id"), "name the column to take it from (--map text=COLUMN)"),
        (("--map", "text=tags"), "must be a string, not a list"),
        (("--map", "text=why"), "as in why.member"),
        (("--map", "text=why.words"), "'why.words': is missing"),
        (("--map", "text=why.text"), "row 2, field 'why.text': is empty"),
    ):
        ingest += option
        assert said in dpicl.fails(*ingest)
    assert "'reason' is missing; is that the column's name?" in dpicl.fails(
        *ingest, "--map", "text=reason", "--skip-incomplete"
    )
    assert "would be 1 exemplars" in dpicl.ok(*ingest, "--skip-incomplete", "--dry-run")
