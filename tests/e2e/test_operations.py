"""The operators' two pages, executed as they stand, one after the other."""

import re
from pathlib import Path

import pytest

from tests.documented import DOCS, blocks, run

pytestmark = pytest.mark.service


def test_the_pages_run_as_written(tmp_path: Path) -> None:
    """Between the backup and the restore something happens, or there would be nothing to acknowledge."""
    first, later = blocks(DOCS / "operations.md", "bash"), blocks(DOCS / "maintenance.md", "bash")
    assert (len(first), len(later)) == (3, 7)
    commands = [*first, *later]
    [backup] = [i for i, block in enumerate(commands) if "ledger backup" in block]
    commands.insert(backup + 1, "dpicl keys create forgotten > forgotten.key\n")
    printed = run("".join(commands), tmp_path)
    assert "dpicl_ledger_restored 0.0" in printed
    assert "refused\n" in printed
    assert "something was lost" in printed
    assert re.search(r"key forgotten \([0-9a-f-]+\) was made: make another", printed)
    assert "the ledger answers again" in printed
    assert re.search(r"Only encryption key \w{16} opens this database now", printed)
    assert "Encrypted all exemplars under a new data key" in printed
    assert (tmp_path / "chief-2027.key").read_text().startswith("dpicl_")
