"""The pages for operators and the page on keys, executed as written, one after the other."""

import re
from pathlib import Path

import pytest

from tests.documented import DOCS, blocks, run

pytestmark = [pytest.mark.lengthy, pytest.mark.service]


def test_the_pages_run_as_written(tmp_path: Path) -> None:
    """A key is made between the backup and the restore, so that there is a loss to acknowledge."""
    pages = [blocks(DOCS / f"{page}.md", "bash") for page in ("operations", "maintenance", "keys")]
    assert [len(page) for page in pages] == [3, 9, 4]
    commands = [command for page in pages for command in page]
    [backup] = [i for i, block in enumerate(commands) if "ledger backup" in block]
    commands.insert(backup + 1, "dpicl keys create forgotten > forgotten.key\n")
    printed = run("".join(commands), tmp_path)
    assert "dpicl_ledger_restored 0.0" in printed
    assert "refused\n" in printed
    assert "something was lost" in printed
    assert re.search(r"key forgotten \([0-9a-f-]+\) was made: make another", printed)
    assert "the ledger answers again" in printed
    assert len(re.findall(r"nothing wrong\. The newest event's hash", printed)) == 3
    assert "The ledger has all that was witnessed" in printed
    assert re.search(r"Only encryption key \w{16} opens this database now", printed)
    assert "Encrypted all exemplars under a new data key" in printed
    assert re.search(r'"rotated_at": "\d', printed)
    keys = ("chief", "ana", "chief-2027", "chief-after-the-theft")
    tokens = [(tmp_path / f"{name}.key").read_text() for name in keys]
    assert all(token.startswith("dpicl_") for token in tokens)
    assert len(set(tokens)) == 4
