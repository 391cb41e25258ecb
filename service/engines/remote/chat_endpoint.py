"""A chat-completions endpoint over HTTP, asked with bounded concurrency and asked again where that may help.

Whatever goes wrong becomes a :class:`.completion.Failure`, which holds nothing that was sent or received but a status:
an exception of the HTTP client carries the request, with the prompt and the key in it, and a server may quote both in
its reply.

Not OpenAI's client: it follows redirects with the prompt, brings cookies of one slot back with another's prompt, reads
bodies of any size, reports to the server how often it tried, and waits for the next try within its caller's place. Nor
tenacity: its loop is as long as this one, knows no ``Retry-After`` and draws from :mod:`random`.
"""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from service.connections import http_options
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import EngineUnavailableError
from service.engines.remote.completion import Failure, Reply, read_completion
from service.engines.remote.refusals import read_refusal
from service.engines.retry_after import retry_after_s
from service.settings import RemoteSecrets

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
_LONGEST_RETRY_AFTER_S = 20.0
_LARGEST_BODY = 4 * 1024 * 1024
_LONGEST_EXPLANATION = 256 * 1024
_HEALTH_TIMEOUT_S = 3.0
_uniform = secrets.SystemRandom().uniform


class ChatEndpoint:
    """Asks ``{base_url}/chat/completions``. No method but the constructor raises for what a server does.

    Args:
        config: address of the endpoint, and limits of retries.
        with_key: whether it is sent ``DPICL_REMOTE_API_KEY``.

    Raises:
        service.engines.errors.EngineUnavailableError: the key cannot be one.
        ValueError: ``DPICL_PROXY_URL`` is not a proxy's, or certificates that the environment names cannot be read.
    """

    def __init__(self, config: OpenAiCompatibleConfig, *, with_key: bool = True):
        # A line for each request would reveal how many slots were drawn, and httpcore's show headers.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._config = config
        self._url = config.base_url.rstrip("/")
        self._client = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity", **(_authorization() if with_key else {})},
            timeout=None,  # noqa: S113  (each try has one as a whole)
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=config.max_concurrency),
            # None is kept: what a server sets in answer to one slot would come back with another's.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            **http_options(config.base_url),
        )
        self._places = asyncio.Semaphore(config.max_concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(
        self,
        prompt: str,
        *,
        temperature: float,
        max_tokens: int,
        number: int = 0,
        response_format: Mapping[str, Any] | None = None,
    ) -> Reply | Failure:
        """The model's reply to one user message.

        Args:
            prompt: the message.
            temperature: 0 asks for the likeliest reply.
            max_tokens: the longest reply.
            number: makes sampled replies to the same prompt differ. The seed is a hash of both.
            response_format: form that the reply must have.
        """
        body = {
            "model": self._config.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": _seed(prompt, number) if temperature > 0 else None,
            "response_format": response_format,
            **self._config.extra_body,
        }
        sent = {name: value for name, value in body.items() if value is not None}
        reply = await self._try(sent)
        for attempt in range(1, self._config.max_attempts):
            if isinstance(reply, Reply) or not reply.passing:
                break
            # Waits without its place: a slot in trouble holds up no other.
            await asyncio.sleep(_wait_s(attempt, reply.retry_after_s))
            reply = await self._try(sent)
        return reply

    async def check(self) -> Failure | None:
        """None if the server answers and takes the key. A server that does not list its models has not failed."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                self._loop = asyncio.get_running_loop()
                async with self._client.stream("GET", f"{self._url}/models") as response:
                    status = response.status_code
        except Exception:
            return Failure()
        return Failure(status) if status in (401, 403) or status >= 500 else None

    def close(self) -> None:
        """Close the connections, on the event loop that opened them; if that runs, as soon as it gets to it."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if loop.is_running():
            asyncio.run_coroutine_threadsafe(self._client.aclose(), loop)
        else:
            loop.run_until_complete(self._client.aclose())

    async def _try(self, sent: Mapping[str, Any]) -> Reply | Failure:
        try:
            async with self._places, asyncio.timeout(self._config.request_timeout_s):
                self._loop = asyncio.get_running_loop()
                async with self._client.stream(
                    "POST",
                    f"{self._url}/chat/completions",
                    content=json.dumps(sent).encode(),
                    headers={"Content-Type": "application/json"},
                ) as response:
                    if not response.is_success:
                        status = response.status_code
                        wait_s = retry_after_s(response.headers.get("retry-after", ""), _LONGEST_RETRY_AFTER_S)
                        refusal = read_refusal(status, await _beginning(response), sent)
                        return Failure(status, wait_s, refusal=refusal)
                    return read_completion(await _read(response), sent)
        except Exception:  # whatever it is, it may quote the prompt
            return Failure()


def _authorization() -> dict[str, str]:
    key = RemoteSecrets().remote_api_key
    token = key.get_secret_value().strip() if key else ""
    if not token.isascii() or not token.isprintable():
        raise EngineUnavailableError("DPICL_REMOTE_API_KEY is not a valid key: set it to the key and nothing else")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _seed(prompt: str, number: int) -> int:
    """31 bits, which every server takes, of the prompt and nothing else."""
    digest = hashlib.sha256(f"{number}\n{prompt}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4]) >> 1


def _wait_s(attempt: int, retry_after_s: float) -> float:
    """Twice as long after each try, by chance up to half of it less, on top of what the server asks for."""
    longest: float = min(_FIRST_WAIT_S * 2 ** (attempt - 1), _LONGEST_WAIT_S)
    return retry_after_s + _uniform(longest / 2, longest)


async def _beginning(response: httpx.Response) -> bytes:
    """The beginning of a body that explains an error, as far as it comes."""
    body = bytearray()
    with suppress(httpx.HTTPError):
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _LONGEST_EXPLANATION:
                break
    return bytes(body[:_LONGEST_EXPLANATION])


async def _read(response: httpx.Response) -> bytes:
    """The body as it came; nothing was to be compressed, and nothing is decompressed."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise ValueError("the body is too large")
    return bytes(body)
