"""Hooks of tools/docs/mkdocs.yml: pages of the repository's root, links to them, a complete navigation."""

import os
import re

from mkdocs.exceptions import Abort
from mkdocs.structure.files import File
from mkdocs.structure.nav import Link

TOOLS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(TOOLS))
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
NOT_SHOWN = {"adr/0000-template.md"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    for name in PAGES:
        files.append(File(name, ROOT, config["site_dir"], config["use_directory_urls"]))
    files.append(File("site.css", TOOLS, config["site_dir"], config["use_directory_urls"]))
    return files


def on_nav(nav, config, files):
    shown = {page.file.src_uri for page in nav.pages} | NOT_SHOWN
    missing = sorted(file.src_uri for file in files.documentation_pages() if file.src_uri not in shown)
    if missing:
        raise Abort(f"tools/docs/mkdocs.yml: nav lacks {', '.join(missing)}")
    use = next(item for item in nav.items if item.title == "Use")
    use.children.append(Link("API reference", "api/index.html"))
    return nav


def link_of_site(text, target, from_root):
    """A link of a document as the site has it: the folder of README.md is the folder of docs/."""
    if re.match(r"[a-z]+:|#", target):
        return f"[{text}]({target})"
    path = target.partition("#")[0]
    if from_root:
        if target.startswith("docs/"):
            return f"[{text}]({target.removeprefix('docs/')})"
    else:
        target = re.sub(r"^\.\./(?=[A-Z]+\.md)", "", target)
    is_page = path.endswith((".md", ".svg", ".png"))
    return f"[{text}]({target})" if is_page else f"`{text}`"


def on_page_markdown(markdown, page, config, files):
    from_root = page.file.src_uri in PAGES
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    for at in range(0, len(parts), 2):
        parts[at] = LINK.sub(lambda found: link_of_site(found[1], found[2], from_root), parts[at])
    return "".join(parts)
