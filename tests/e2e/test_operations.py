"""The operators' page, executed as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.documented import DOCS, blocks, run


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    """Between its backup and its restore something happens, or there would be nothing to acknowledge."""
    commands = blocks(DOCS / "operations.md", "bash")
    assert len(commands) == 10
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
