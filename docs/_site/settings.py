"""The reference of settings: environment variables, and the ``args`` of a Serve config."""

from __future__ import annotations

from _site.tables import default, fields, kind, section, table
from service.connections import ConnectionSettings
from service.serving.application import ApplicationArgs
from service.settings import ListenSettings, RemoteSecrets, Settings

_HEAD = """# Settings

## Environment

For operators: every environment variable of the service. Every process reads them; set them alike on several hosts.
Write values without quotation marks. An empty value is as good as none, but for the database and the cap of ε, where it
is refused.
[The first day](../operations.md#settings) names those to decide on first.

"""
_ARGS = """
## The `args` of a Serve config

In the file given to `dpicl serve --config`, under `applications: args:`. Unknown keys are refused.

"""


def page() -> str:
    """Every environment variable and every key of ``args``."""
    rows = [
        [f"`DPICL_{name.upper()}`", kind(of), default(of), of["description"]]
        for model in (Settings, ListenSettings, RemoteSecrets, ConnectionSettings)
        for name, of in model.model_json_schema()["properties"].items()
    ]
    schema = ApplicationArgs.model_json_schema()
    args = [fields(schema), *(section(f"### {name}", part) for name, part in schema.get("$defs", {}).items())]
    return _HEAD + table(["variable", "type", "default", "meaning"], rows) + _ARGS + "\n".join(args)
