"""Hooks of MkDocs: pages for the source files that others link to, formulas, and a policy that loads nothing else."""

from __future__ import annotations

from pathlib import Path

from _site import formulas, policy, sources
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each source file that others link to."""
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for uri, content in sources.pages(ROOT, texts).items():
        files.append(File.generated(config, uri, content=content))
    return files


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
