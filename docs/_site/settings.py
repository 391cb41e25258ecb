"""The reference of settings: environment variables, and the ``args`` of a Serve config."""

from __future__ import annotations

import inspect

from _site.tables import default, field_docstrings, fields, kind, table
from service import application
from service.application import ApplicationArgs
from service.engines import configs
from service.engines.remote.chat_endpoint import RemoteSecrets
from service.settings import Settings

_HEAD = """# Settings

## Environment

Every process of the service reads them; set them alike on several hosts. [For operators](../operations.md#settings)
says which to set first.

"""
_ARGS = """
## The `args` of a Serve config

In the file given to `dpicl serve --config`, under `applications: args:`. Unknown keys are refused.

"""


def page() -> str:
    """Every environment variable and every key of ``args``."""
    rows = [
        [f"`DPICL_{name.upper()}`", kind(of), default(of), field_docstrings(model).get(name, "")]
        for model in (Settings, RemoteSecrets)
        for name, of in model.model_json_schema()["properties"].items()
    ]
    schema = ApplicationArgs.model_json_schema()
    args = [fields(schema, field_docstrings(ApplicationArgs))]
    for name, one in schema.get("$defs", {}).items():
        model = getattr(configs, name, None) or getattr(application, name)
        args.append(f"### {name}\n\n{inspect.cleandoc(model.__doc__)}\n\n{fields(one, field_docstrings(model))}")
    return _HEAD + table(["variable", "type", "default", "meaning"], rows) + _ARGS + "\n".join(args)
