"""docs/quickstart.md, executed: every way to ask gets an answer. Docker's commands are read, as there is no Docker."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.deploy.overlays import ROOT, instructions
from tests.documented import DOCS, SOURCES, blocks, run
from tests.e2e.serving import made_up
from tests.processes import free_ports

pytestmark = pytest.mark.lengthy

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEAMS = ("Payments", "Shipping", "Security", "Garden", "Members")


def shown(name: str) -> str:
    return (SOURCES / "quickstart" / name).read_text()


@pytest.mark.service
async def test_every_way_to_ask_gets_an_answer(tmp_path: Path) -> None:
    """The questions follow the order of the page, which shows the numbers of answers left."""
    build, install, serve = shown("pip.sh").splitlines()  # tests/service/cli/test_extras.py installs it for real
    assert build == "make wheel"
    assert (
        re.fullmatch(r'pip install "\$\(echo dist/dp_icl-\*\.whl\)\[(.+)]"', install)[1]
        in PROJECT["optional-dependencies"]
    )
    assert serve == "dpicl serve --synthetic"
    (port,) = free_ports(1)
    with made_up(tmp_path, "--port", str(port)) as printed:
        paste = re.search(r"export DPICL_URL=(\S+) DPICL_API_KEY=(\S+)\n", printed)
        asked = run(paste[0] + shown("ask.sh"), tmp_path)
        assert "1 answer charged; 99 left" in asked
        assert "free, answered before" in asked
        curl = shown("curl.sh")
        answer, budgets = (json.loads(run(paste[0] + one, tmp_path)) for one in re.split(r"\n(?=curl)", curl))
        assert answer["label"] in TEAMS
        assert answer["cost"]["answers_left"] == 98
        assert [one["knowledge_base"] for one in budgets["knowledge_bases"]] == ["support"]
        label, cost = run(f"{paste[0]}python {SOURCES}/quickstart/openai_client.py", tmp_path).splitlines()
        assert label in TEAMS
        assert f"`{cost}`" in (DOCS / "quickstart.md").read_text()
        agent = f"python {SOURCES}/quickstart/agent.py"
        assert run(paste[0] + agent, tmp_path).strip() in TEAMS
        admin = re.search(r"sign in with this key: +(\S+)", printed)[1]
        assert "an admin may not ask" in run(f"{paste[0]}DPICL_API_KEY={admin} {agent}", tmp_path)
        (server,) = json.loads(shown("mcp.json"))["mcpServers"].values()
        url = server["url"].replace("http://127.0.0.1:8080", paste[1])
        headers = {name: value.replace("dpicl_...", paste[2]) for name, value in server["headers"].items()}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            offered = (await client.list_tools()).tools
        (named,) = re.findall(r"It sees three tools: (.*)\.", (DOCS / "quickstart.md").read_text())
        assert {tool.name for tool in offered} == set(re.findall(r"`(\w+)`", named))


def test_docker_is_given_what_the_image_has() -> None:
    of_image: dict[str, list[str]] = {}
    for keyword, rest in instructions(ROOT / "deploy" / "images" / "cpu.Dockerfile"):
        of_image.setdefault(keyword, []).append(rest)
    commands = (shown("docker.sh") + shown("docker-own-data.sh")).splitlines()
    built = f"dp-icl:{PROJECT['version']}"
    assert commands[0] == f"docker build -f deploy/images/cpu.Dockerfile -t {built} ."
    made_up_data, own_data = (command for command in commands if command.startswith("docker run"))
    (listening,) = of_image["EXPOSE"]
    for command in (made_up_data, own_data):
        assert f" -p 127.0.0.1:8080:{listening} " in command
        assert f" {built}" in command
    serve = shlex.join(json.loads(of_image["CMD"][-1]))
    assert made_up_data.endswith(f"{built} {serve.replace('serve', 'serve --synthetic')}")
    assert own_data.endswith(built), "the image's own command"
    assert f" -v dp-icl:{of_image['WORKDIR'][-1]} " in own_data
    (name,) = re.findall(r"--name (\S+)", own_data)
    assert commands[-1].startswith(f"docker exec {name} dpicl keys create chief --role admin")
    assert blocks(DOCS / "kubernetes.md", "sh")[0].count(own_data.split("-v ")[1].split(" -e")[0]) == 1
