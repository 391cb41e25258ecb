"""Who asks over REST."""

import pytest

from service.services import Services
from tests.service.api.test_api import Api


@pytest.fixture
def api(services: Services) -> Api:
    return Api(services)
