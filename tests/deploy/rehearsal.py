"""Build an image and start it without Docker: its Dockerfile's own commands, in a root file system of their own.

    python -m tests.deploy.rehearsal cpu

Each stage gets a folder as its root (chroot), with this machine's Debian mounted read-only and this Python in place of
the base image's. The last stage is then started as Kubernetes would start it: read-only, as the Dockerfile's user,
without capabilities, with no network but loopback, writing to /tmp and its own folder alone. Needs root; nothing
outside a temporary folder is touched. The CPU image takes some minutes and 12 GB: it downloads what Docker would.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.deploy.overlays import ROOT, stages
from tests.deploy.test_images import IMAGES, LOCKS, unnamed

PATH = f"PATH={sys.base_prefix}/bin:/usr/bin:/bin"
READY = "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/readyz')"


@dataclass
class Stage:
    """Where a stage's commands run: its root, the folder in it, and the variables of `ENV` and of this machine."""

    root: Path
    directory: str = "/"
    settings: list[str] = field(default_factory=lambda: [f"HOME=/root {PATH}", *_pip_settings()])


def script(image: Path, folder: Path) -> list[str]:
    """The shell commands of all stages and of the start, to be run in a mount namespace."""
    lines: list[str] = []
    done: dict[str, Stage] = {}
    for name, instructions in stages(image).items():
        parent = instructions[0][1].split()[0]
        if parent in done:  # FROM an earlier stage: go on in its root
            done[name] = replace(done[parent], settings=[*done[parent].settings])
        else:
            done[name] = Stage(folder / (name or "final"))
            lines += _base(done[name].root)
        for word, rest in instructions[1:]:
            lines += _instruction(word, rest, done[name], done)
    return lines + _start(instructions, done[""].root, folder / "volume")


def _instruction(word: str, rest: str, stage: Stage, done: dict[str, Stage]) -> list[str]:
    if word == "ENV":
        stage.settings.append(rest)
    elif word == "WORKDIR":
        stage.directory = rest
        return [f"mkdir -p {stage.root}{rest}"]
    elif word == "COPY":
        *sources, target = rest.split()
        origin = done[sources.pop(0).removeprefix("--from=")].root if rest.startswith("--from=") else ROOT
        into = Path(f"{stage.root}{stage.directory}", target) if target[0] != "/" else f"{stage.root}{target}"
        return [f"cp -a {origin}/{source.removeprefix('/')} {into}" for source in sources]
    elif word == "RUN":
        settings = [f"export {one}" for one in stage.settings]
        command = "; ".join([*settings, f"cd {stage.directory}", re.sub(r"--mount=\S+ +", "", rest)])
        return [f"chroot {stage.root} sh -ec {shlex.quote(command)}"]
    return []


def _pip_settings() -> list[str]:
    """Variables with which pip reaches this machine's index; in Docker, a secret holds them."""
    return [f"{name}={shlex.quote(value)}" for name, value in os.environ.items() if name.startswith("PIP_")]


def _base(root: Path) -> list[str]:
    """Debian's folders and Python, read-only."""
    lines = [f"mkdir -p {root}/opt {root}/var/lib {root}/root {root}/dev {root}/proc"]
    lines += [f"mkdir -p -m 1777 {root}/tmp"]  # noqa: S108
    lines += [f"cp -a /{name} {root}/" for name in ("bin", "lib", "lib64", "sbin") if Path(f"/{name}").is_symlink()]
    for source in ("/usr", "/etc", sys.base_prefix):
        lines += [f"mkdir -p {root}{source}"]
        lines += [f"mount --bind {source} {root}{source}", f"mount -o remount,ro,bind {root}{source}"]
    for wheels in os.environ.get("PIP_FIND_LINKS", "").split():
        if Path(wheels).is_dir():
            lines += [f"mkdir -p {root}{wheels}", f"mount --bind {wheels} {root}{wheels}"]
    return [*lines, f"mount --rbind /dev {root}/dev", f"mount -t proc proc {root}/proc"]


def _start(instructions: list[tuple[str, str]], root: Path, volume: Path) -> list[str]:
    said = dict(instructions)
    home = said["WORKDIR"]
    user, group = said["USER"].split(":")
    settings = " ".join(rest for word, rest in instructions if word == "ENV")
    drop = f"setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    inside = f"""
        export {PATH}; export {settings}; cd {home}
        test "$(id -u)" = {user}
        for folder in / /opt/dp-icl /usr; do
          if touch $folder/written 2> /dev/null; then echo "$folder can be written"; exit 1; fi
        done
        dpicl serve --help > /dev/null
        export DPICL_DATABASE_URL=sqlite:///{home}/dpicl.sqlite DPICL_ENCRYPTION_KEY="$(openssl rand -base64 32)"
        dpicl migrate
        dpicl keys create rehearsal > /dev/null
        {shlex.join(json.loads(said["CMD"]))} & service=$!
        until python -c {shlex.quote(READY)} 2> /dev/null; do kill -0 $service; sleep 1; done
        kill -TERM $service
        wait $service
    """
    confined = f"chroot {root} {drop} env -i timeout 240 bash -ec {shlex.quote(inside)}"
    return [
        f"mkdir {volume}",
        f"chown {user}:{group} {volume}",
        f"mount --rbind {root} {root}",
        f"mount -o remount,ro,bind {root}",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",  # noqa: S108
        f"mount --bind {volume} {root}{home}",
        f"unshare --net sh -ec {shlex.quote(f'ip link set lo up; exec {confined}')}",
    ]


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("rehearsal: mounting needs root")
    (image,) = (path for path in IMAGES if path.stem == sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="image") as name:
        folder = Path(name)
        folder.chmod(0o755)
        commands = "\n".join(script(image, folder))
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private"]
        subprocess.run([*namespaces, "bash", "-xeuo", "pipefail", "-c", commands], check=True)
        sbom = json.loads((folder / "final/opt/dp-icl/sbom.json").read_text())
        missing = unnamed(sbom, LOCKS[image.stem])
        assert not missing, missing
        print(f"{image.name}: built, started, and stopped; its SBOM names {len(sbom['components'])} packages")


if __name__ == "__main__":
    main()
