"""Hooks of MkDocs: reference pages written from the code itself, and pages for the source files that others link to.

Nothing generated is stored, so nothing can go stale. Plugins would be longer to use or show less: mkdocs-gen-files does
what ``File.generated`` does; jsonschema2md rounds a limit of 1e-12 to 0; essentials-openapi makes 1.5 MB of the REST
API, and excludes Typer's rich; Swagger UI cannot be searched, nor read from a disk.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _site import formulas, metrics, plan, policy, problems, rest, settings, sources
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    generated = {
        "reference/rest.md": rest.page(),
        "reference/openapi.json": rest.document(),
        "reference/cli.md": _command_line(),
        "reference/plan.md": plan.page(),
        "reference/problems.md": problems.page(),
        "reference/settings.md": settings.page(),
        "reference/metrics.md": metrics.page(),
        **sources.pages(ROOT, {file.src_uri: file.content_string for file in files.documentation_pages()}),
    }
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content))
    return files


def _command_line() -> str:
    """The command line's documentation, as Typer writes it."""
    command = [sys.executable, "-m", "typer", "service.cli", "utils", "docs", "--name=dpicl", "--title=Command line"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to source files lead to their pages on the site; typeset the proofs."""
    markdown = sources.relinked(ROOT, page.file.src_uri, markdown)
    return formulas.typeset(markdown) if page.file.src_uri.startswith("privacy") else markdown


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Let the browser load nothing from elsewhere."""
    return policy.applied(output)


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page that is shown for an unknown address."""
    return policy.applied(output) if template_name.endswith(".html") else output
