"""Examine the documentation: links, names of the package and paths of the repository, pages that nothing leads to.

Run by scripts/docs. Prints one line a fault and ends with 1 where there is one.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
START = "README.md"
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "digideep/**/*.md", "sessions_template/*.md")

_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+[\"'][^)]*)?\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)", re.MULTILINE)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w./-])digideep(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?(?![\w/-])")
_PATH = re.compile(r"(?:digideep|tests|docs|examples|scripts|benchmarks|requirements|sessions_template)/[\w./-]*")


def without_code(text: str) -> str:
    """Return Markdown without its code, in which brackets are no links and `#` is no heading."""
    return _SPAN.sub(" ", _FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Return the targets of all links and images of a page."""
    plain = without_code(text)
    return [*_LINK.findall(plain), *_REFERENCE.findall(plain)]


def anchors(text: str) -> set[str]:
    """Return what `#...` may name in a page: its headings, spelt as GitHub spells them, and its explicit anchors."""
    found: set[str] = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 1
        unique = slug
        while unique in found:
            unique = f"{slug}-{number}"
            number += 1
        found.add(unique)
    return found


def link_faults(page: Path, *, root: Path) -> Iterator[str]:
    """Yield one line for each relative link of a page that leads nowhere."""
    for link in links(page.read_text(encoding="utf-8")):
        if _SCHEME.match(link) or link.startswith("//"):
            continue
        target, _, anchor = unquote(link).partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"link to {link}: there is no such file"
        elif not path.is_relative_to(root):
            yield f"link to {link}: leads out of the repository"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"link to {link}: {path.name} has no such heading"


def is_known(reference: str) -> bool:
    """Return whether `package.module.Class.method` or `package.module:Class` names something that exists."""
    module, colon, attribute = reference.partition(":")
    parts = module.split(".")
    rest: list[str] = attribute.split(".") if colon else []
    while True:
        try:
            found: object = importlib.import_module(".".join(parts))
            break
        except ModuleNotFoundError as error:
            if colon or len(parts) == 1 or error.name is None or not error.name.startswith(parts[0]):
                return False
            rest.insert(0, parts.pop())
    for name in rest:
        # Fields of a dataclass without a default are no attributes of the class.
        if not hasattr(found, name) and name not in getattr(found, "__annotations__", {}):
            return False
        found = getattr(found, name, None)
    return True


def name_faults(text: str) -> Iterator[str]:
    """Yield one line for each dotted name below `digideep`, and each path in a code span, that does not exist."""
    for reference in dict.fromkeys(_NAME.findall(text)):
        if not is_known(reference):
            yield f"{reference}: there is no such name"
    for _, span in _SPAN.findall(_FENCE.sub("", text)):
        if _PATH.fullmatch(span) and not (ROOT / span).exists():
            yield f"{span}: there is no such file"


def unreachable(pages: Sequence[Path], *, root: Path) -> list[Path]:
    """Return the pages in docs/ that no chain of links leads to from the README."""
    seen: set[Path] = set()
    waiting = [root / START]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        targets = [unquote(link).partition("#")[0] for link in links(page.read_text(encoding="utf-8"))]
        waiting += [(page.parent / target).resolve() for target in targets if target and not _SCHEME.match(target)]
    return [page for page in pages if page.is_relative_to(root / "docs") and page not in seen]


def faults(root: Path = ROOT) -> list[str]:
    """Return one line for each fault of the documentation below `root`."""
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    found = []
    for page in pages:
        name = page.relative_to(root)
        found += [f"{name}: {fault}" for fault in link_faults(page, root=root)]
        found += [f"{name}: {fault}" for fault in name_faults(page.read_text(encoding="utf-8"))]
    return found + [
        f"{page.relative_to(root)}: no link leads here from {START}" for page in unreachable(pages, root=root)
    ]


def main() -> int:
    """Print the faults; return 1 where there is one."""
    found = faults()
    for fault in found:
        sys.stdout.write(fault + "\n")
    sys.stdout.write(f"documentation: {len(found)} faults\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
