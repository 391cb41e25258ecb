"""Build what a cluster runs: programs from pinned Go modules, images from Dockerfiles, without Docker.

Everything lands in one folder, and is built once; the service's own image is built anew, from its own Dockerfile, and
unchanged layers are taken from the run before.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGE = "dp-icl:0.1.0"
_DEBIAN = "localhost/debian:bookworm"
_PYTHON = "docker.io/library/python:3.11.14-slim-bookworm"
_VERSION = "v1.34.4"
_PROGRAMS = {
    "kubernetes": [
        f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
    ],
    "kuberay": ["github.com/ray-project/kuberay/ray-operator"],
    "coredns": ["github.com/coredns/coredns"],
    "router": ["github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"],
}
_DEBIAN_PACKAGES = (
    "etcd-server containerd runc containernetworking-plugins iptables ipset conntrack buildah debootstrap iproute2"
)


def install() -> None:
    """Install Debian's packages that a cluster needs; needs root."""
    missing = [
        name
        for name in _DEBIAN_PACKAGES.split()
        if subprocess.run(["dpkg-query", "-W", name], capture_output=True, check=False).returncode
    ]
    if missing:
        print(f"installing {', '.join(missing)} from Debian", flush=True)
        _call(["apt-get", "update", "-qq"])
        _call(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing])


def programs(folder: Path) -> Path:
    """Folder of the programs, which are built if they are not there.

    Args:
        folder: folder for all that is built.
    """
    bin = folder / "bin"
    version = "k8s.io/component-base/version"
    linker = f"-s -w -X {version}.gitVersion={_VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor=34"
    for module, packages in _PROGRAMS.items():
        if all((bin / Path(one).name).exists() for one in packages):
            continue
        print(f"building {module} from its Go modules", flush=True)
        command = ["go", "build", "-trimpath", "-ldflags", linker, "-o", f"{bin}/", *packages]
        subprocess.run(command, cwd=HERE / "go" / module, check=True, env={**os.environ, "CGO_ENABLED": "0"})
    return bin


def module_folder(module: str, package: str) -> Path:
    """Folder of a Go module's own files, such as its manifests."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", package]
    return Path(
        subprocess.run(command, cwd=HERE / "go" / module, check=True, capture_output=True, text=True).stdout.strip()
    )


class Images:
    """Images of a cluster, and the tool that builds them.

    Args:
        folder: folder for all that is built.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = folder / "bin"
        self._archives = folder / "images"
        self._archives.mkdir(parents=True, exist_ok=True)
        (folder / "built").mkdir(exist_ok=True)

    def build(self) -> list[Path]:
        """Build all images, and return their archives."""
        known = self._buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
        if _DEBIAN not in known:
            self._debian()
        for name, context, image in (
            ("python", HERE, _PYTHON),
            ("servers", HERE, "localhost/servers:1"),
            ("coredns", self._bin, "localhost/coredns:1"),
            ("operator", self._bin, "localhost/kuberay-operator:1"),
        ):
            if image not in known:
                print(f"building the image {image}", flush=True)
                self._bud(HERE / "images" / f"{name}.Dockerfile", context, image, ())
        print(f"building the image {IMAGE} by its Dockerfile", flush=True)
        own = f"localhost/{IMAGE}"
        self._bud(ROOT / "deploy/images/cpu.Dockerfile", ROOT, own, self._pip())
        return [
            self._archive(one)
            for one in (_DEBIAN, "localhost/servers:1", "localhost/coredns:1", "localhost/kuberay-operator:1", own)
        ]

    def again(self, tag: str, lines: Iterable[str]) -> Path:
        """A further image of the service, with lines added to its Dockerfile, and its archive."""
        file = self._folder / f"{tag}.Dockerfile"
        file.write_text("\n".join([f"FROM localhost/{IMAGE}", *lines, ""]))
        self._bud(file, self._folder / "built", f"localhost/dp-icl:{tag}", ())
        return self._archive(f"localhost/dp-icl:{tag}")

    def _debian(self) -> None:
        print("building Debian's image by debootstrap", flush=True)
        root = self._folder / "debian"
        packages = "ca-certificates,netbase,openssl,tzdata"
        _call(["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)])
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "-q", container, str(root), "/")
        self._buildah("config", "--cmd", "sleep infinity", container)
        self._buildah("commit", "-q", "--rm", container, _DEBIAN)

    def _bud(self, file: Path, context: Path, image: str, options: Sequence[str]) -> None:
        command = ["bud", "-q", "--pull=never", "--layers", *options, "-f", str(file), "-t", image, str(context)]
        self._buildah(*command)

    def _pip(self) -> list[str]:
        """This machine's pip configuration, as a secret that stays out of the image, and the files that it names."""
        names = {
            name.removeprefix("PIP_").lower().replace("_", "-"): v
            for name, v in os.environ.items()
            if name[:4] == "PIP_"
        }
        file = self._folder / "pip.conf"
        file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in names.items()), ""]))
        options = ["--secret", f"id=pip,src={file}", "-v", "/etc/ssl/certs:/etc/ssl/certs:ro"]
        for place in names.get("find-links", "").split():
            if Path(place).is_dir():
                options += ["-v", f"{place}:{place}:ro"]
        return options

    def _archive(self, image: str) -> Path:
        archive = self._archives / f"{image.rpartition('/')[2].replace(':', '-')}.tar"
        newest = self._buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", image).strip()
        mark = archive.with_suffix(".id")
        if not archive.exists() or not mark.exists() or mark.read_text() != newest:
            archive.unlink(missing_ok=True)
            self._buildah("push", "-q", image, f"docker-archive:{archive}:{image}")
            mark.write_text(newest)
        return archive

    def _buildah(self, *arguments: str) -> str:
        command = ["buildah", "--root", f"{self._folder}/storage", "--runroot", f"{self._folder}/run", *arguments]
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"buildah {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout


def _call(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
