"""The service below a path of a site, behind a reverse proxy that takes that path away or leaves it.

The path is ``DPICL_ROOT_PATH``, or what a trusted proxy reports in ``X-Forwarded-Prefix``, which counts more. A request
has it in ``root_path`` and at the beginning of ``path``, as ASGI has it, whichever of both the proxy does: links,
redirects, cookies and addresses in answers then begin with it, and routes do not.
"""

from collections.abc import Sequence
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.gateway.api.problems import Problem
from service.gateway.paths import inner_path
from service.problem_kinds import ProblemKind
from service.settings import read_root_path

_PREFIX = b"x-forwarded-prefix"


class ReverseProxied:
    """The outermost ASGI middleware.

    Args:
        app: the application.
        root_path: path at which it is served, without a slash at the end; empty: the site's own root.
        trusted: addresses and networks of proxies whose ``X-Forwarded-`` headers count: ``-Prefix`` here, the others in
            uvicorn's middleware.
    """

    def __init__(self, app: ASGIApp, *, root_path: str, trusted: Sequence[str]) -> None:
        self._root_path = root_path
        self._forwarded = ProxyHeadersMiddleware(app, list(trusted))  # type: ignore[arg-type]  # ASGI by other names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            try:
                scope = self._placed(scope)
            except ValueError as error:
                problem = Problem(ProblemKind.BAD_ADDRESS, f"X-Forwarded-Prefix: {error}")
                await problem.response(scope)(scope, receive, send)
                return
        await self._forwarded(scope, receive, send)  # type: ignore[arg-type]

    def _placed(self, scope: Scope) -> Scope:
        """The request with its path below the root.

        Raises:
            ValueError: a trusted proxy reports several prefixes, or one that is not a path.
        """
        root = self._root_path
        peer = scope.get("client")
        given = [value for name, value in scope["headers"] if name == _PREFIX]
        if given and peer and peer[0] in self._forwarded.trusted_hosts:
            root = read_root_path(b", ".join(given).decode("latin-1").strip())
        if not root:
            return scope
        path = inner_path(scope)  # Ray Serve's own route_prefix is not what the outside sees
        if path == root or path.startswith(f"{root}/"):
            path = path.removeprefix(root)
        path = root + (path or "/")
        return {**scope, "root_path": root, "path": path, "raw_path": quote(path).encode()}
