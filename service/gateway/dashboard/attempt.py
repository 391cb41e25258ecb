"""A sign-in between its two halves: what the browser keeps while a provider asks who it is."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


class SignInRefusedError(Exception):
    """The provider, or what it says, lets nobody in; the message is for the person who wanted in.

    Attributes:
        status: of the page that says so.
        wait_s: how long to wait before the next attempt.
    """

    def __init__(self, message: str, status: int = 403, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.wait_s = wait_s


@dataclass(frozen=True)
class Attempt:
    """A sign-in that was begun here and goes on at a provider: what only this browser has, to finish it with.

    Attributes:
        state: tells the provider's answer from one that somebody else asked for.
        nonce: ties the provider's word to this attempt.
        verifier: shows the provider that who asked is who fetches its word.
        going: where to go then.
    """

    state: str
    nonce: str
    verifier: str
    going: str

    @classmethod
    def read(cls, kept: str) -> Attempt:
        """From what :attr:`kept` was.

        Raises:
            SignInRefusedError: it is nothing, or something else.
        """
        match kept.split(".", 3):
            case [state, nonce, verifier, going] if state and nonce and verifier:
                return cls(state, nonce, verifier, unquote(going))
        raise SignInRefusedError("This sign-in was begun in another browser, or over ten minutes ago. Start again.")

    @property
    def kept(self) -> str:
        """For a cookie."""
        return ".".join((self.state, self.nonce, self.verifier, quote(self.going, safe="")))
