"""A content security policy in every page: scripts, styles, images and requests from the site itself and nowhere else.

Material writes a few scripts into its pages; each is allowed by its hash. Styles in attributes are all it needs beside.
"""

from __future__ import annotations

import base64
import hashlib
import re

_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL)


def applied(html: str) -> str:
    """A page with its policy."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in _SCRIPT.findall(html))
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in dict.fromkeys(digests))])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
    )
    return html.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)
