"""A hook of MkDocs: the page `changelog.md` is CHANGELOG.md, whose links begin at the root of the project."""

from pathlib import Path


def on_page_markdown(markdown: str, page, config, files) -> str:
    if page.file.src_uri != "changelog.md":
        return markdown
    text = (Path(config["docs_dir"]).parent / "CHANGELOG.md").read_text()
    return text.replace("](docs/", "](")
