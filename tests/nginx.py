"""A real nginx in front of a service, with the location that docs/operations.md shows."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.documented import DOCS, blocks
from tests.processes import free_ports, wait_for

PREFIX = "/dp-icl"
_HEADER = f"    proxy_set_header X-Forwarded-Prefix {PREFIX};\n"
_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {location}
  }}
}}
"""


def documented_location(upstream: str, *, strips: bool, reports: bool) -> str:
    """The page's location, for a service at an address.

    Args:
        upstream: address of the service.
        strips: whether nginx takes the prefix away, as on the page.
        reports: whether it reports the prefix, as on the page.
    """
    (location,) = blocks(DOCS / "operations.md", "nginx")
    assert _HEADER in location
    location = location.replace("127.0.0.1:8123/", urlsplit(upstream).netloc + ("/" if strips else ""))
    return location if reports else location.replace(_HEADER, "")


@contextmanager
def nginx(folder: Path, location: str, port: int = 0) -> Iterator[str]:
    """Run nginx with a location until the block ends, and yield its address. It takes a free port unless given one."""
    program = shutil.which("nginx", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail("a reverse proxy is tested: apt-get install nginx")
    port = port or free_ports(1)[0]
    folder.mkdir(exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, location=location))
    log = folder / "error.log"
    process = subprocess.Popen([program, "-p", folder, "-c", config, "-e", log])
    try:
        assert wait_for(lambda: process.poll() is not None or _listens(port), 30), log.read_text()
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        time.sleep(0.05)
        return probe.connect_ex(("127.0.0.1", port)) == 0
