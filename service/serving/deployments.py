"""The common parts of the Ray Serve deployments: their limit, and the meaning of a failed call to one."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError

deployment = serve.deployment(max_ongoing_requests=20_000)
"""Out of reach: the service rejects excess requests itself. Serve queues what exceeds its limit, and once a replica has
rejected requests its router (Ray 2.60) lets that queue go at four a second (benchmarks/routing.py)."""


@contextmanager
def calling(which: str) -> Iterator[None]:
    """A call to a deployment.

    Args:
        which: it is, for the error.

    Raises:
        EngineUnavailableError: it does not answer, or has a full queue.
    """
    try:
        yield
    except BackPressureError as error:
        raise EngineBusyError(f"the {which} has a full queue") from error
    except (RayServeException, RayError, grpc.RpcError, OSError) as error:
        raise EngineUnavailableError(f"the {which} does not answer") from error


async def or_refusal(work: Awaitable[Any]) -> Any:
    """An engine's output; or its refusal, for :func:`call` to raise: Serve would log one that a deployment raised."""
    try:
        return await work
    except (EngineUnavailableError, UnanswerableQueryError) as refusal:
        return refusal


async def call(which: str, handle: DeploymentHandle[Any], method: str, *args: Any) -> Any:
    """The result of a method of a deployment; arguments and errors as of :func:`calling`.

    Raises:
        Exception: it returned one.
    """
    with calling(which):
        answer = await getattr(handle, method).remote(*args)
    if isinstance(answer, Exception):
        raise answer
    return answer
