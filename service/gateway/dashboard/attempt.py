"""A sign-in between its two halves: the data that the browser keeps while a provider identifies the person."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

COOKIES = "dpicl_sign_in_"
"""The beginning of the names of attempts' cookies."""
MOST = 5
"""Number of attempts that a browser keeps at once, so that its requests stay small."""


class SignInRefusedError(Exception):
    """A sign-in failed; the message is for the person who tried it.

    Attributes:
        status: HTTP status of the page that shows the message.
        wait_s: seconds to wait before the next attempt.
        ended: names of the cookies of attempts that ended with it.
    """

    ended: Sequence[str] = ()

    def __init__(self, message: str, status: int = 403, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.wait_s = wait_s


@dataclass(frozen=True)
class Attempt:
    """A sign-in that was begun here and goes on at a provider: data to finish it with, which only this browser has.

    Attributes:
        state: secret that distinguishes the provider's answer from an answer to another person's attempt.
        nonce: secret that ties the provider's ID token to this attempt.
        verifier: secret that proves to the provider that the token is fetched for this attempt.
        going: path in the dashboard to go to afterwards.
    """

    state: str
    nonce: str
    verifier: str
    going: str

    @classmethod
    def read(cls, kept: str) -> Attempt | None:
        """Read an attempt from its cookie; None: it has another form.

        Args:
            kept: earlier value of :attr:`Attempt.kept`.
        """
        match kept.split(".", 3):
            case [state, nonce, verifier, going] if state and nonce and verifier:
                return cls(state, nonce, verifier, unquote(going))
        return None

    @property
    def kept(self) -> str:
        """The attempt as the value of a cookie."""
        return ".".join((self.state, self.nonce, self.verifier, quote(self.going, safe="")))

    @property
    def cookie(self) -> str:
        """The name of the attempt's cookie: a browser may have one for each of its tabs. Names sort by their time."""
        return f"{COOKIES}{int(time.time()):011d}_{self.state[:12]}"


def find(cookies: Mapping[str, str], state: str) -> tuple[str, Attempt]:
    """The attempt that a provider's answer belongs to, with the name of its cookie.

    Args:
        cookies: the browser's.
        state: state in the answer.

    Raises:
        SignInRefusedError: the browser began no such attempt, or began it over ten minutes ago.
    """
    kept = {name: Attempt.read(value) for name, value in cookies.items() if name.startswith(COOKIES)}
    for name, attempt in kept.items():
        if attempt is not None and secrets.compare_digest(attempt.state.encode(), state.encode()):
            return name, attempt
    if kept:
        raise SignInRefusedError("This answer belongs to another sign-in. Start again.")
    raise SignInRefusedError("This sign-in was begun in another browser, or over ten minutes ago. Start again.")


def oldest(cookies: Collection[str]) -> list[str]:
    """Names of the cookies of attempts to forget before another begins: all but the newest."""
    return sorted(name for name in cookies if name.startswith(COOKIES))[: 1 - MOST]
