"""Commands: functions declared once, with the right that they need."""

import asyncio
import json
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import update_wrapper
from hashlib import sha256
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from accounting.ledger import trail
from service.engines.private_threads import privately
from service.operations.roles import Actor, Right
from service.problem_kinds import ProblemKind, RefusalError
from service.records.records import Records

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class Command(Generic[P, T_co]):
    """A function whose first argument is the actor, who must have a right.

    Attributes:
        needs: the right.
    """

    def __init__(self, function: Callable[Concatenate[Actor, P], T_co], needs: Right, private: bool):
        self.needs = needs
        self._function = function
        self._private = private
        update_wrapper(self, function)

    def __call__(self, actor: Actor, /, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Do it.

        Raises:
            service.operations.roles.NotAllowedError: the actor lacks the right.
        """
        actor.require(self.needs)
        return self._function(actor, *args, **kwargs)

    async def aside(self, actor: Actor, /, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Do it beside the event loop; if it reads private data, in a thread for whose work no other request waits."""
        if self._private:
            return await privately(trail.carried(lambda: self(actor, *args, **kwargs)))
        return await asyncio.to_thread(self, actor, *args, **kwargs)


OnRecords = Command[Concatenate[Records, P], T_co]
"""A command on the records, its first argument after the actor."""

COMMANDS: dict[str, Command[..., Any]] = {}
"""Every command, such as ``keys.create``, once its module is imported."""


def command(
    needs: Right, *, private: bool = False
) -> Callable[[Callable[Concatenate[Actor, P], T_co]], Command[P, T_co]]:
    """Declare a command.

    Args:
        needs: right that the actor needs.
        private: whether it reads private data.
    """

    def declare(function: Callable[Concatenate[Actor, P], T_co]) -> Command[P, T_co]:
        declared = Command(function, needs, private)
        COMMANDS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = declared
        return declared

    return declare


class Confirmation(StrEnum):
    """A consequence that an actor must confirm.

    Attributes:
        PERMANENT: an act that cannot be undone.
        LOCK_OUT: a state in which no admin could sign in with a key.
        WEAK_PROMISE: a lifetime budget that gives little protection, or a public size too small for answers.
        WORSE_THAN_FREE: a plan whose answers are expected to be no better than free ones.
        AGAIN: an act that was done before with the same figures, perhaps by the same request.
    """

    PERMANENT = "permanent"
    LOCK_OUT = "lock_out"
    WEAK_PROMISE = "weak_promise"
    WORSE_THAN_FREE = "worse_than_free"
    AGAIN = "again"


SENT = frozenset({Confirmation.PERMANENT})
"""Confirmations of a program's request, unless it asks first: it writes its figures exactly."""
TOKEN = f"({'|'.join(Confirmation)}):[0-9a-f]{{32}}"
"""Pattern of an error's ``token``."""


class UnconfirmedError(RefusalError, ValueError):
    """Nothing was done: the actor did not confirm a consequence.

    Attributes:
        confirmation: the confirmation that is missing.
        doubts: reasons to confirm it, a sentence each.
        token: confirmation of these very doubts, with their figures, and of no others.
    """

    kind = ProblemKind.UNCONFIRMED

    def __init__(self, confirmation: Confirmation, doubts: Collection[str]):
        super().__init__(" ".join(doubts))
        self.confirmation = confirmation
        self.doubts = tuple(doubts)
        self.token = _token(confirmation, doubts)
        self.members = {"confirm": confirmation, "token": self.token, "problems": self.doubts}


def check_confirmed(confirmation: Confirmation, doubts: Collection[str], given: Collection[str]) -> None:
    """Check that doubts, if there are any, were confirmed.

    Args:
        confirmation: confirmation that is needed.
        doubts: reasons to confirm it, a sentence each, with all figures that it is about.
        given: confirmations that the actor gave, of any doubts or, as an error's ``token``, of those that were shown.

    Raises:
        UnconfirmedError: they were not.
    """
    if doubts and confirmation not in given and _token(confirmation, doubts) not in given:
        raise UnconfirmedError(confirmation, doubts)


def _token(confirmation: Confirmation, doubts: Collection[str]) -> str:
    return f"{confirmation}:{sha256(json.dumps([*doubts]).encode()).hexdigest()[:32]}"
