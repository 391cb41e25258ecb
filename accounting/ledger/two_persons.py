"""Who stands behind whom: whether two who act are one, as far as the trail can tell.

Whoever makes an API key, or replaces its token, has seen its token and can act with it. So two keys are in the same
hands if a key or person stands behind both: made one of them, or made a key that did. A name of the command line counts
only as itself: it may have made every first key, and has the database anyway.
"""

from collections import defaultdict

from accounting.ledger.events import KeyCreated, KeyRotated, Particulars, PersonSignedIn


class Hands:
    """Who made which key, as events tell.

    Attributes:
        people: who signed in with a provider.
    """

    def __init__(self) -> None:
        self._makers: dict[str, set[str]] = defaultdict(set)
        self.people: set[str] = set()

    def note(self, happened: Particulars) -> None:
        """Take an event into account; most tell nothing."""
        match happened:
            case KeyCreated(key=key, by=by) | KeyRotated(key=key, by=by):
                self._makers[key].add(by)
            case PersonSignedIn(by=by):
                self.people.add(by)

    def are_one(self, one: str, other: str) -> bool:
        """Whether a key or person stands behind both.

        Args:
            one: a key's id, a person as in the trail, or a name of the command line.
            other: another.
        """
        return bool(self._behind(one) & self._behind(other))

    def _behind(self, actor: str) -> set[str]:
        found, ahead = {actor}, [actor]
        while ahead:
            makers = self._makers.get(ahead.pop(), set())
            new = {maker for maker in makers if maker in self._makers or maker in self.people} - found
            found |= new
            ahead += new
        return found
