"""A sign-in between its two halves: the data that the browser keeps while a provider identifies the person."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


class SignInRefusedError(Exception):
    """A sign-in failed; the message is for the person who tried it.

    Attributes:
        status: HTTP status of the page that shows the message.
        wait_s: seconds to wait before the next attempt.
    """

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
    def read(cls, kept: str) -> Attempt:
        """Read an attempt from its cookie.

        Args:
            kept: earlier value of :attr:`Attempt.kept`.

        Raises:
            SignInRefusedError: the cookie is missing, or has another form.
        """
        match kept.split(".", 3):
            case [state, nonce, verifier, going] if state and nonce and verifier:
                return cls(state, nonce, verifier, unquote(going))
        raise SignInRefusedError("This sign-in was begun in another browser, or over ten minutes ago. Start again.")

    @property
    def kept(self) -> str:
        """The attempt as the value of a cookie."""
        return ".".join((self.state, self.nonce, self.verifier, quote(self.going, safe="")))
