"""Behind a transaction pooler: every charge is durable, and nothing is left to a server's session."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting.ledger import witness
from accounting.plans.plan import calibrate_plan, load_plan
from exemplar_store.errors import DatabaseInUseError
from service.answering.plans.signing import sign
from service.records.database import open_database
from service.records.records import open_records
from service.settings import Settings
from tests.service.conftest import PLAN, make_records
from tests.service.records.pooler import pooling

pytestmark = pytest.mark.slow


@pytest.fixture
def pooled(new_postgres):
    """A database whose server would not wait for the disk: its URL, and its URL through a pooler."""
    direct = sa.make_url(new_postgres())
    with open_database(direct.render_as_string(hide_password=False)).begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {direct.database} SET synchronous_commit = off")
    (socket,) = [file for file in Path(str(direct.query["host"])).glob(".s.PGSQL.*") if file.suffix != ".lock"]
    with pooling(str(socket), direct.username or "postgres", direct.database or "") as url:
        yield direct.render_as_string(hide_password=False), url


def seen(url: str, name: str, **options: float) -> Counter[str]:
    """A setting as a dozen transactions see it."""
    database, values = open_database(url, **options), Counter[str]()
    for _ in range(12):
        with database.begin() as connection:
            values[connection.exec_driver_sql(f"SHOW {name}").scalar_one()] += 1
    database.dispose()
    return values


def test_each_transaction_is_durable_and_patient(pooled) -> None:
    for url in pooled:
        assert seen(url, "synchronous_commit") == {"on": 12}
        assert seen(url, "transaction_isolation") == {"read committed": 12}
        assert seen(url, "statement_timeout", statement_timeout_s=10.0) == {"10s": 12}


def test_statements_run_again_and_again(pooled) -> None:
    """A driver prepares what it runs often; the next session does not know it."""
    database = open_database(pooled[1])
    for number in range(30):
        with database.begin() as connection:
            assert connection.execute(sa.select(sa.literal(number))).scalar_one() == number
    database.dispose()


def test_the_service_works_behind_one(pooled, tmp_path) -> None:
    direct, url = pooled
    unwitnessed = {"development": True, "latency_unpadded": True, "witness_url": "none"}
    make_records(tmp_path, settings=Settings(database_url=direct, **unwitnessed)).database.dispose()
    behind = open_records(Settings(database_url=url, **unwitnessed))
    for _ in range(20):
        assert len(behind.store.sample_slots("toys", probability=1, ensemble=3, max_exemplars=99)) == 3
        assert behind.store.get("toys").public_size == 60
    behind.database.dispose()


def test_every_charge_is_made_where_ledger_and_witness_are_behind_one(pooled, tmp_path) -> None:
    both = {"database_url": f"sqlite:///{tmp_path / 'ledger.sqlite'}", "witness_url": pooled[1]}
    for settings in (both, {"database_url": pooled[1], "witness_url": f"sqlite:///{tmp_path / 'witness.sqlite'}"}):
        records = make_records(tmp_path, settings=Settings(development=True, latency_unpadded=True, **settings))
        sign(records, calibrate_plan(load_plan(PLAN), 60), "test")
        task = records.ledger.budgets.task("toys.colour")
        for number in range(20):
            charged = records.ledger.charge(task, hashlib.sha256(bytes([number])).digest(), key_id="k")
            records.ledger.release(charged.id, {"label": "red"})
        records.database.dispose()
        with open_database(pooled[0]).begin() as connection:  # it is the ledger's next, which wants it empty
            witness.metadata.drop_all(connection)


def test_what_needs_the_database_for_itself_refuses_one(pooled, tmp_path) -> None:
    """Between two transactions, other processes behind a pooler have no server session that would show them."""
    direct, url = pooled
    unwitnessed = {"development": True, "latency_unpadded": True, "witness_url": "none"}
    make_records(tmp_path, settings=Settings(database_url=direct, **unwitnessed)).database.dispose()
    behind = open_records(Settings(database_url=url, **unwitnessed))
    with pytest.raises(DatabaseInUseError):
        behind.store.reencrypt(lambda *_: None)
    behind.database.dispose()
