"""deploy/systemd/dp-icl.service, without a running systemd: its own checks, and the unit's commands in its confines."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from service.cli.serve import _DRAIN_WITHIN_S as DRAIN_WITHIN_S
from tests.deploy.overlays import ROOT
from tests.documented import DOCS, blocks, reader
from tests.processes import answers, free_ports

UNIT = ROOT / "deploy" / "systemd" / "dp-icl.service"
NOBODY = 65534


def settings(section: str = "Service") -> dict[str, list[str]]:
    """The unit's lines in a section, by name; a name may be given several times."""
    found: dict[str, list[str]] = {}
    (part,) = re.findall(rf"^\[{section}\]\n(.*?)(?=^\[|\Z)", UNIT.read_text(), re.MULTILINE | re.DOTALL)
    for name, value in re.findall(r"^(\w+)=(.*)$", part, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(*args: object) -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.fail("the unit is checked by systemd itself: apt-get install systemd")
    done = subprocess.run(["systemd-analyze", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_understands_it_and_finds_it_confined(tmp_path: Path) -> None:
    here = tmp_path / "dp-icl.service"
    program = Path(sys.executable).parent / "dpicl"
    here.write_text(UNIT.read_text().replace("/opt/dp-icl/bin/dpicl", str(program)))
    assert analyze("verify", here) == ""
    # From 0 to 10; what a service with a network and no filter gets is 9 and more.
    assert "Overall exposure level" in analyze("security", "--offline=true", "--threshold=18", here)
    here.write_text(here.read_text().replace("ProtectSystem", "ProtectSistem"))
    assert "ProtectSistem" in analyze("verify", here)


def test_a_stop_waits_for_what_is_charged_and_spares_rays_processes() -> None:
    service = settings()
    assert service["KillMode"] == ["mixed"]
    assert int(service["TimeoutStopSec"][0]) >= DRAIN_WITHIN_S + 30
    assert service["LimitCORE"] == ["0"]
    assert service["Restart"] == ["always"]


def commands() -> str:
    (shown,) = [one for one in blocks(DOCS / "operations.md", "sh") if "systemctl enable" in one]
    return shown


def test_the_page_installs_what_the_unit_names() -> None:
    service, shown = settings(), commands()
    assert f"useradd --system --user-group --home-dir /var/lib/{service['StateDirectory'][0]} " in shown
    assert shown.split("\n")[0].endswith(f" {service['User'][0]}")
    assert f"cat > {service['EnvironmentFile'][0]} " in shown
    assert f"venv {Path(shlex.split(service['ExecStart'][0])[0]).parents[1]}\n" in shown
    assert f"cp {UNIT.relative_to(ROOT)} /etc/systemd/system/" in shown


@pytest.mark.service
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, and become another user")
def test_its_commands_run_in_its_confines() -> None:
    """As another user without capabilities; only a folder for /tmp and the state directory can be written to."""
    service, (port,) = settings(), free_ports(1)
    with tempfile.TemporaryDirectory(prefix="dpicl-unit-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        folder.chmod(0o711)
        state, etc, private_tmp = folder / "state", folder / "etc", folder / "tmp"
        for one in (state, etc, private_tmp):
            one.mkdir(mode=int(service["StateDirectoryMode"][0], 8))
        # The page's own lines make the key and the file of settings.
        shown = commands().partition("/opt/dp-icl/bin/pip")[2].partition("chown")[0]
        made = "\n".join(line for line in shown.splitlines()[1:] if not line.startswith("install"))
        places = {"/etc/dp-icl": str(etc), "/var/lib/dp-icl": str(state)}
        for there, here in places.items():
            made = made.replace(there, here)
        subprocess.run(["bash", "-euc", made], check=True)
        (environment_file,) = etc.glob("*.env")
        assert {file.stat().st_mode & 0o777 for file in etc.glob("*.key")} == {0o600}
        given = dict(line.split("=", 1) for line in environment_file.read_text().splitlines())
        given |= dict(one.split("=", 1) for one in shlex.split(service["Environment"][0]))
        given = {name: value.replace("/var/lib/dp-icl", str(state)) for name, value in given.items()}
        for one in (etc, state, private_tmp, *etc.iterdir()):
            os.chown(one, NOBODY, NOBODY)
        environment = {**reader(), **given, "DPICL_PORT": str(port), "TMPDIR": str(private_tmp)}
        environment.pop("RAY_TMPDIR", None)
        start = _confined(service["ExecStartPre"][0], state, private_tmp)
        done = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Migrated from an empty database" in done.stdout
        log = folder / "serve.log"
        with log.open("wb") as sink:
            served = subprocess.Popen(_confined(service["ExecStart"][0], state, private_tmp), env=environment,
                                      stdout=sink, stderr=sink)  # fmt: skip
        try:
            deadline = time.monotonic() + 600  # the machine may be busy
            while not answers(f"http://127.0.0.1:{port}/readyz"):
                assert served.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            family = [psutil.Process(served.pid), *psutil.Process(served.pid).children(recursive=True)]
            confined = [one for one in family if one.uids().real == NOBODY]
            assert len(confined) > 3
            limits = [Path(f"/proc/{one.pid}/limits").read_text() for one in confined]
            assert all(re.search(r"^Max core file size +0 +0 ", one, re.MULTILINE) for one in limits)
        finally:
            served.send_signal(signal.SIGTERM)  # KillMode=mixed: to the main process alone
            status = served.wait(90)
        assert status == 0, log.read_text()
        made_files = [file for file in state.rglob("*") if file.is_file()]
        assert {"dpicl.sqlite", "witness.sqlite"} <= {file.name for file in made_files}
        assert {file.stat().st_mode & 0o077 for file in state.rglob("*")} == {0}


def _homes_hidden(aside: Path) -> list[str]:
    """Commands that hide people's folders, but for this Python if it is in one: an operator's is not."""
    lines = []
    for home in (Path("/root"), Path("/home")):
        inside = Path(sys.base_prefix).is_relative_to(home)
        lines += [f"mkdir -p {aside}", f"mount --bind {sys.base_prefix} {aside}"] if inside else []
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {home}")
        lines += [f"mkdir -p {sys.base_prefix}", f"mount --bind {aside} {sys.base_prefix}"] if inside else []
    return lines


def _confined(command: str, state: Path, private_tmp: Path) -> list[str]:
    """A command of the unit, with its limits, in a mount namespace of its own."""
    service = settings()
    assert service["ProtectSystem"] == ["strict"]
    assert service["PrivateTmp"] == ["yes"]
    assert service["CapabilityBoundingSet"] == [""]
    program = command.replace("/opt/dp-icl/bin/dpicl", str(Path(sys.executable).parent / "dpicl"))
    inside = " && ".join(
        [
            *_homes_hidden(private_tmp.with_name("python")),
            *(f"mount --bind {folder} {folder}" for folder in (state, private_tmp)),
            "mount -o remount,bind,ro /",
            f"umask {service['UMask'][0]}",
            f"cd {state}",
            f"exec prlimit --core={service['LimitCORE'][0]} setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
            f"--no-new-privs --bounding-set=-all {program}",
        ]
    )
    return ["unshare", "--mount", "sh", "-ec", inside]
