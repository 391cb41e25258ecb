"""The client of the tests over REST."""

import pytest

from service.operations.services import Services
from tests.service.gateway.api.test_api import Api


@pytest.fixture
def api(services: Services) -> Api:
    return Api(services)
