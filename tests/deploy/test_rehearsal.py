"""The rehearsal of an image leaves nothing out. It takes too long to run here; `make images` runs it."""

import re
import subprocess
from pathlib import Path

from tests.deploy.rehearsal import script
from tests.deploy.test_images import all_of, each_image


@each_image
def test_every_command_is_run_once_and_in_order(image: Path, tmp_path: Path):
    lines = script(image, tmp_path)
    said = [re.sub(r"--mount=\S+ +", "", rest) for rest in all_of(image, "RUN")]
    places = [[number for number, line in enumerate(lines) if f"; {command}'" in line] for command in said]
    assert all(len(place) == 1 for place in places), places
    assert places == sorted(places)
    subprocess.run(["bash", "-n", "-c", "\n".join(lines)], check=True)


@each_image
def test_every_file_is_copied(image: Path, tmp_path: Path):
    text = "\n".join(script(image, tmp_path))
    for rest in all_of(image, "COPY"):
        for source in (path for path in rest.split()[:-1] if not path.startswith("--from=")):
            assert re.search(rf"^cp -a \S+/{re.escape(source.removeprefix('/'))} ", text, re.MULTILINE), source
