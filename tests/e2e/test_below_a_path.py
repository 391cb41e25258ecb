"""``dpicl serve`` placed by its environment, below a path of a site: through Ray Serve the peer stays the proxy."""

import tempfile
from pathlib import Path

import httpx
import pytest

from tests.documented import reader
from tests.e2e.serving import made_up
from tests.nginx import PREFIX, documented_location, nginx
from tests.processes import free_ports

pytestmark = pytest.mark.service

TRUSTED = "127.0.0.9"


def test_the_environment_places_a_service(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    direct = f"http://127.0.0.2:{port}"
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray:
        environment = {
            **reader(),
            "RAY_TMPDIR": ray,
            "DPICL_HOST": "127.0.0.2",
            "DPICL_PORT": str(port),
            "DPICL_ROOT_PATH": "/given",
            "DPICL_TRUSTED_PROXIES": f'["{TRUSTED}"]',
        }
        with made_up(tmp_path, environment=environment) as printed:
            assert f"Serving on {direct} " in printed
            assert httpx.head(f"{direct}/healthz").status_code == 200
            assert kind(f"{direct}/v1/budgets") == "/given/problems/missing-key"
            assert kind(f"{direct}/given/v1/budgets") == "/given/problems/missing-key"
            forged = {"X-Forwarded-Prefix": "/forged", "X-Forwarded-For": TRUSTED}
            assert kind(f"{direct}/v1/budgets", forged) == "/given/problems/missing-key"
            location = documented_location(direct, strips=True, reports=True).replace("{", f"{{ proxy_bind {TRUSTED};")
            with nginx(tmp_path / "nginx", location) as proxy:
                assert kind(f"{proxy}{PREFIX}/v1/budgets", forged) == f"{PREFIX}/problems/missing-key"
                moved = httpx.get(f"{proxy}{PREFIX}/admin/")
                assert moved.headers["location"] == f"{PREFIX}/admin/sign-in"


def kind(address: str, headers: dict[str, str] | None = None) -> str:
    """The kind of the problem that an address answers."""
    return httpx.get(address, headers=headers).json()["type"]
