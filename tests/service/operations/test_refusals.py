"""Every error that can reach a face has a kind of problem."""

import re
from importlib import import_module
from pathlib import Path

from service.operations.refusals import kind_of
from service.problem_kinds import ProblemKind

ROOT = Path(__file__).parents[3]
BELOW_THE_FACES = ("answering", "engines", "operations", "records", "sources")
NEVER_THERE = {
    # The service does not start, or the command line ends.
    "AuditKeyError",
    "EmbeddingModelError",
    "LocalModelError",
    "MissingDatabaseError",
    "NoReplyError",
    "NotHereError",
    "SanitizersMissingError",
    "SchemaError",
    "TokenError",
    "UnsuitableDatabaseError",
    # Its caller turns it into another error.
    "MeaninglessOptionError",
    "UnanswerableQueryError",
    # A measurement on labelled rows states it beside its figures.
    "UnmeasurableError",
    # It is raised only while the largest slots are measured.
    "UnansweredError",
}


def own_errors() -> set[type[Exception]]:
    """Errors that the packages below the faces define."""
    files = [file for room in BELOW_THE_FACES for file in (ROOT / "service" / room).rglob("*.py")]
    found = set()
    for file in files:
        names = re.findall(r"^class (\w*Error)\b", file.read_text(), re.MULTILINE)
        if names:  # other modules may need packages that are not installed
            module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
            found |= {getattr(module, name) for name in names}
    return found


def test_every_error_below_the_faces_has_a_kind() -> None:
    errors = own_errors()
    assert len(errors) > 25
    without = {one.__name__ for one in errors if kind_of(one.__new__(one)) is ProblemKind.INTERNAL_ERROR}
    assert without == NEVER_THERE
