"""Who looks at the dashboard: an admin, unless a file says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.services import Services, open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, Embedding, MajorityEngine, make_records
from tests.service.dashboard.dashboard_browser import Browser


@pytest.fixture
def stranger(services: Services) -> Browser:
    return Browser(services)


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    assert stranger.sign_in().status_code == 303
    return stranger


def serving(folder: Path, embedder: Embedding = EMBEDDER, **settings: object) -> Services:
    """A service of its own, without a knowledge base, with further settings."""
    folder.mkdir(exist_ok=True)
    database = f"sqlite:///{folder}/service.sqlite"
    given = Settings(database_url=database, development=True, latency_unpadded=True, **settings)
    return open_services(make_records(folder, settings=given), MajorityEngine(), embedder)
