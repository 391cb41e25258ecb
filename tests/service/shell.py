"""``dpicl``, run in the process of the tests."""

import os
import sys

import pytest

from service.cli import main


class Shell:
    """Runs ``dpicl`` with the given arguments; a failure is an exit status and a line on standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.monkeypatch = monkeypatch
        self.capsys = capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["dpicl", *map(str, args)])
        umask = os.umask(0o022)  # as usual; a command sets another
        try:
            main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        else:
            status = 0
        finally:
            os.umask(umask)
        out, err = self.capsys.readouterr()
        return status, out, err

    def ok(self, *args: object) -> str:
        status, out, err = self(*args)
        assert status == 0, err
        return out

    def fails(self, *args: object) -> str:
        status, _, err = self(*args)
        assert status != 0
        assert "Traceback" not in err
        return " ".join(err.split())


def create(dpicl: Shell) -> None:
    dpicl.ok("kb", "create", "toys", "--epsilon", "8", "--delta", "2e-4", "--public-size", 60, "--yes")
