"""Addresses within the application, wherever a site has it."""

from starlette.types import Scope


def outer_path(scope: Scope) -> str:
    """The path at which the application is served, without a slash at the end; empty: the site's own root."""
    return str(scope.get("app_root_path", scope.get("root_path", ""))).rstrip("/")


def inner_path(scope: Scope) -> str:
    """The path of a request within the application, such as ``/v1/keys``."""
    path, outer = str(scope["path"]), outer_path(scope)
    return path.removeprefix(outer) if path.startswith(f"{outer}/") or path == outer else path
