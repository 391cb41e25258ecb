"""Who looks at the dashboard: an admin, unless a file says otherwise."""

from __future__ import annotations

import pytest

from service.services import Services
from tests.service.dashboard.dashboard_browser import Browser


@pytest.fixture
def browser(services: Services) -> Browser:
    browser = Browser(services)
    assert browser.sign_in().status_code == 303
    return browser
