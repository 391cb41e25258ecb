"""The pattern of an address that a request matched, which may be reported; the address itself may name a unit."""

from starlette.types import Scope

from service.gateway.paths import outer_path

_OF_EXEMPLARS = {"exemplars", "units"}
"""Parts of patterns whose requests read or change exemplars."""


def route_pattern(scope: Scope) -> str | None:
    """The pattern of a routed request, such as ``/v1/keys/{key_id}``; None: no route matched."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return None
    mounted = str(scope.get("root_path", "")).removeprefix(outer_path(scope))
    return f"{mounted}{path}"


def concerns_exemplars(pattern: str | None) -> bool:
    """Whether the result of a request may depend on stored exemplars, so that only its caller may learn it."""
    return pattern is not None and not _OF_EXEMPLARS.isdisjoint(pattern.split("/"))
