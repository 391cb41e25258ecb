"""A service on a machine whose environment sends every program to a proxy."""

from pathlib import Path

import httpx
import pytest

from tests.e2e.serving import CANARY, dpicl, own, prepared, started
from tests.recording_proxy import recording_proxy

pytestmark = [pytest.mark.service, pytest.mark.lengthy]


def test_nothing_reaches_the_proxy_of_the_environment(tmp_path: Path) -> None:
    with recording_proxy() as proxy, own(tmp_path, **proxy.environment()) as environment:
        for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
            environment.pop(name, None)
        key = prepared(environment)
        with started(tmp_path, environment) as (url, log, _):
            asked = {"query": f"{CANARY} asks about a lamp"}
            headers = {"Authorization": f"Bearer {key}"}
            answer = httpx.post(
                f"{url}/v1/tasks/support.team/answers", json=asked, headers=headers, timeout=150, trust_env=False
            )
            assert answer.status_code == 200
            for name in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
                again = dpicl(
                    environment, "ask", "support.team", asked["query"], "--key", key,
                    "--url", url.replace("127.0.0.1", name),
                )  # fmt: skip
                assert again.startswith(answer.json()["label"])
            lines = log.read_text().splitlines()
        assert proxy.seen == []
        assert len(lines) < 100, lines[-1]
