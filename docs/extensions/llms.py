"""A hook of MkDocs: the site as text for language models (llmstxt.org).

`llms.txt` has a line for each page of the navigation, and `llms-full.txt` the pages themselves. Decisions and the
changelog are left out.
"""

from __future__ import annotations

from pathlib import Path

LEFT_OUT = ("decisions/", "changelog.md")
_pages: list = []


def on_nav(nav, config, files):
    _pages[:] = [page for page in nav.pages if not page.file.src_uri.startswith(LEFT_OUT)]
    return nav


def on_post_build(config) -> None:
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n"
    base = (config["site_url"] or "").rstrip("/")
    lines = [f"- [{page.title}]({base and base + '/'}{page.file.src_uri})" for page in _pages]
    site = Path(config["site_dir"])
    site.joinpath("llms.txt").write_text("\n".join([head, "## Pages", "", *lines, ""]))
    site.joinpath("llms-full.txt").write_text("\n".join([head, *(page.markdown or "" for page in _pages)]))
