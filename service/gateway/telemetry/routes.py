"""Which pattern of an address a request matched: what may be told of it, since the address itself may name a unit."""

from starlette.types import Scope

_OF_EXEMPLARS = {"exemplars", "units"}
"""Parts of patterns whose requests read or change what is stored of exemplars."""


def route_pattern(scope: Scope) -> str | None:
    """Such as ``/v1/keys/{key_id}``, once the request was routed; None if no route matched."""
    path = getattr(scope.get("route"), "path", None)
    return None if path is None else f"{scope.get('root_path', '')}{path}"


def concerns_exemplars(pattern: str | None) -> bool:
    """Whether how a request ends may depend on what is stored of exemplars, so that nobody else may be told."""
    return pattern is not None and not _OF_EXEMPLARS.isdisjoint(pattern.split("/"))
