"""Made-up data for newcomers: ``dpicl serve --synthetic``.

What makes a database synthetic is the key it is written under: one that is published here. So it cannot be confused
with a real one, by any process: a service with a real key does not open it, and this mode does not open a real
database. Whatever opens it knows, says so with every answer (:mod:`service.engines.noted`), and takes no exemplars
(:mod:`service.synthetic.sealed`).
"""

import base64

KEY = b"dp-icl: made-up data, published!"
"""32 bytes that everybody knows."""

KEY_BASE64 = base64.b64encode(KEY).decode()
"""As ``DPICL_ENCRYPTION_KEY`` has it."""

NOTICE = "MADE-UP DATA (dpicl serve --synthetic): nobody's tickets, and nothing here is confidential."
