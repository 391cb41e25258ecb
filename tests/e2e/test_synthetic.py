"""``dpicl serve --synthetic``: from one command to an answer, by pasting what it printed."""

import re
from operator import ne
from pathlib import Path

import httpx
import pytest

from service.serving.synthetic.setup import QUESTIONS
from tests.documented import run
from tests.e2e.serving import made_up
from tests.processes import free_ports

pytestmark = [pytest.mark.lengthy, pytest.mark.service]

EXEMPLARS = [
    {"text": text, "team": "Shipping", "reply": "Shipping leaves with the van at noon."}
    for text in ("My parcel is late.", "The courier left the box in the rain.", "Where is my order?")
]


def test_a_newcomer_pastes_what_it_prints(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with made_up(tmp_path, "--port", str(port)) as printed:  # where there is no checkout
        url = f"http://127.0.0.1:{port}"
        commands = printed.split("in another terminal:\n")[1].split("The budget, and what is left")[0]
        commands = re.sub(r"^  ", "", commands, flags=re.MULTILINE)
        printed_then = run(commands + "\ndpicl budget", tmp_path)
        said = " ".join(printed_then.split())
        assert said.count("MADE-UP DATA") >= 3  # dpicl ask, curl, dpicl budget
        assert "97" in said  # of 100 answers, after three questions
        by_curl, by_openai = re.search(r'"label": ?"(\w+)".*?}\s*(\w+)$', printed_then, re.MULTILINE).groups()
        answers = (printed_then.split()[0], by_curl, by_openai)
        # The noise makes one of them wrong in less than one run in a hundred, and two in less than one in a million.
        assert sum(map(ne, answers, QUESTIONS.values())) <= 1, answers
        admin = printed.split("this key:")[1].split()[0]
        dashboard = httpx.get(f"{url}/admin/", follow_redirects=True, timeout=30)
        assert dashboard.status_code == 200
        own = httpx.post(
            f"{url}/v1/knowledge-bases/support/exemplars",
            content='{"unit_id": "me", "text": "x", "team": "Security", "desk": "Office", "reply": "y"}',
            headers={"Authorization": f"Bearer {admin}", "Content-Type": "application/x-ndjson"},
            timeout=60,
        )
        assert own.status_code == 403
        assert own.json()["type"].endswith("made-up-data")
        analyst = {"Authorization": f"Bearer {re.search(r'DPICL_API_KEY=(.*)', printed).group(1)}"}
        for task in ("team", "page", "topics", "rules"):  # every mechanism, on the engine in its own process
            body = {"query": "Where is my parcel?", "exemplars": EXEMPLARS, "repeats": 5}
            shown = httpx.post(f"{url}/v1/tasks/support.{task}/preview", json=body, headers=analyst, timeout=60).json()
            assert shown["preview"] is True
            assert shown["answered"] > 0
            assert shown["exemplars"]["supplied"] == len(EXEMPLARS)
        assert shown["noiseless"]["keywords"] == ["leaves", "noon", "shipping", "van"]
        database = Path(re.search(r"DPICL_DATABASE_URL=sqlite:///(\S+)", printed).group(1))
        assert database.is_file()
    assert not database.parent.exists()
    assert not (tmp_path / "var").exists()
