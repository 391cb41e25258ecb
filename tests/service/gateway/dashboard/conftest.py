"""Browsers for the dashboard: of a stranger, and of an admin who is signed in."""

import pytest

from service.operations.services import Services
from tests.service.gateway.dashboard.dashboard_browser import Browser


@pytest.fixture
def stranger(services: Services) -> Browser:
    return Browser(services)


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    assert stranger.sign_in().status_code == 303
    return stranger
