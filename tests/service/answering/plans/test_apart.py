"""The deployment that reads whole knowledge bases, for one-time releases and topics, without Ray's processes."""

from pathlib import Path

import pytest
from ray import serve

from exemplar_store import ExemplarStore
from service.answering.once.making import NotMadeError, charge_once
from service.answering.plans.signing import prepare, promise, sign
from service.engines.errors import EngineUnavailableError
from service.operations import plans
from service.operations.roles import Actor
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.serving.application import PrivateWork, RemotePrivateWork
from service.settings import Settings
from tests.service.answering import topic_shop
from tests.service.answering.test_once import PLAN as ONCE
from tests.service.answering.test_once import alone, noisy, task_of
from tests.service.conftest import EMBEDDER, Embedding, MajorityEngine, make_records

pytestmark = pytest.mark.model

PRIVATE = "a red toy"


class Work(PrivateWork.func_or_class):
    """The deployment, with an engine for tests."""

    def __init__(self, settings: Settings):
        self._services = open_services(open_records(settings), MajorityEngine(), EMBEDDER)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return make_records(tmp_path, epsilon=200)


@pytest.fixture
def apart(records: Records) -> Services:
    """An ingress's services."""
    handle = serve.run(serve.deployment(Work).bind(records.settings), _local_testing_mode=True)
    return open_services(records, MajorityEngine(), EMBEDDER, apart=RemotePrivateWork(handle))


def fail(*_args, **_options):
    raise RuntimeError(PRIVATE)


def test_the_reason_why_it_cannot_be_made_is_reported(records: Records, apart: Services) -> None:
    promise(records, noisy(alone(ONCE)), "test")
    charge_once(records.ledger, task_of(records))
    with pytest.raises(NotMadeError):
        apart.make("toys.for-ever")


def test_nothing_that_may_depend_on_exemplars_is_disclosed(
    records, apart: Services, monkeypatch, caplog, capfd
) -> None:
    monkeypatch.setattr(ExemplarStore, "every_unit", fail)
    with pytest.raises(NotMadeError, match="plan 1 is signed") as caught:
        sign(records, noisy(alone(ONCE)), "test", make=apart.make)
    said = "".join(capfd.readouterr()) + caplog.text
    assert PRIVATE not in said + str(caught.value)


@pytest.fixture
def shop(tmp_path: Path) -> Records:
    """Reviews whose plan with topics is not signed yet."""
    return topic_shop.opened(tmp_path, None)


def beside(records: Records) -> Services:
    """The services of an ingress for other records."""
    handle = serve.run(serve.deployment(Work).bind(records.settings), _local_testing_mode=True)
    return open_services(records, MajorityEngine(), Embedding(topic_shop.embed), apart=RemotePrivateWork(handle))


def test_units_are_sorted_by_topic_apart_from_requests(shop: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    services = beside(shop)
    monkeypatch.setattr(services.records.store, "topics_of", fail)  # of this process; the other has its own store
    calibrated = prepare(services.records, topic_shop.plan(), topic_shop.embed)
    plans.sign(Actor("root", "root", "key", "admin"), services.records, calibrated, make=services.make)
    topic_shop.ask(services, "my kettle leaks")
    (seen,) = topic_shop.shown(services)
    assert seen == {f"a kettle {number}" for number in range(10)} | {"my kettle", "my other kettle"}


def test_a_plan_whose_topics_are_not_found_is_not_signed(shop: Records, monkeypatch, caplog, capfd) -> None:
    services = beside(shop)
    calibrated = prepare(services.records, topic_shop.plan(), topic_shop.embed)
    monkeypatch.setattr(ExemplarStore, "topics_of", fail)
    with pytest.raises(EngineUnavailableError, match="nothing is signed") as caught:
        sign(services.records, calibrated, "test")
    assert services.records.ledger.budgets.plans(topic_shop.NAME) == []
    assert PRIVATE not in "".join(capfd.readouterr()) + caplog.text + str(caught.value)
