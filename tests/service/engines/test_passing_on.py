"""Every method of the protocols is passed on from one engine to another, with the arguments that it was given."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from service.engines.passing_on import METHODS, Method, PassesOn


class Noting(PassesOn):
    """Answers with the name and the arguments of each call."""

    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        return method.name, dict(arguments)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", METHODS)
def test_each_method_is_passed_on(name: str) -> None:
    """Arguments may be given by position or by name."""
    parameters = list(inspect.signature(method := getattr(Noting(), name)).parameters)
    arguments = {parameter: object() for parameter in parameters}
    assert asyncio.run(method(*arguments.values())) == (name, arguments)
    assert asyncio.run(method(**arguments)) == (name, arguments)


def test_which_methods_see_exemplars() -> None:
    private = {name: method.slots for name, method in METHODS.items() if method.slots is not None}
    assert private == {"contributions": "slots", "write": "slots", "keep": "blocks"}
