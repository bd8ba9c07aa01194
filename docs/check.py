#!/usr/bin/env python3
"""Checks what the project's documents say about the project itself.

1. Links of Markdown files lead to files and headings that exist. (Sphinx checks the book again; it does not read the others.)
2. Paths of the repository that are written as code, such as `crates/admission/src/window.rs`, exist.
3. Tests that are named as `PLACE: NAME` exist: PLACE is a directory of the repository, NAME a test in it.
4. Each promise of docs/promises.md names at least one test.
5. Pages that a reader meets first keep to their length.
6. No line of a paragraph begins with a number that makes a list of it, such as “60. Between”.

It needs nothing but Python. It prints each fault with its file and line, and exits with 1 if there is one.
"""

import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = {"README.md": 150, "README.ko.md": 150, "ARCHITECTURE.md": 100, "docs/how/overview.md": 200}
FOLDERS = "benches|clients|console|crates|deploy|docs|examples|fuzz|lua|scripts|tests|verifier"
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"(`+)(.+?)\1")
PATH = re.compile(rf"(?:{FOLDERS})/[\w./*{{}},-]*")
TEST = re.compile(rf"((?:{FOLDERS})(?:/[\w./-]+)?): (.+)")

faults: list[str] = []


def tracked() -> list[str]:
    """Files that git knows, and new ones that it does not ignore."""
    args = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(args, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def prose(text: str) -> list[tuple[int, str]]:
    """Numbered lines outside fenced code and comments. Options of directives stay out, too."""
    lines, fence = [], None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence is None and mark:
            fence = mark[1]
        elif fence is not None:
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = None
        elif not line.lstrip().startswith("<!--"):
            lines.append((number, line))
    return lines


@functools.cache
def anchors(path: Path) -> set[str]:
    """The anchors of a Markdown file's headings, as GitHub and MyST make them, explicit ones, and those of included files."""
    found: set[str] = set()
    for included in re.findall(r"^```\{include\} (\S+)$", path.read_text(), re.MULTILINE):
        found |= anchors((path.parent / included).resolve())
    for _, line in prose(path.read_text()):
        if target := re.match(r"\(([\w-]+)\)=\s*$", line):
            found.add(target[1])
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").replace("*", "")
            slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
            name, count = slug, 0
            while name in found:
                count += 1
                name = f"{slug}-{count}"
            found.add(name)
    return found


def check_links(name: str, lines: list[tuple[int, str]]) -> None:
    # A link may go over the end of a line, so all lines are read as one text.
    text = "\n".join(CODE.sub("", line) for _, line in lines)
    for link in LINK.finditer(text):
        number, destination = lines[text.count("\n", 0, link.start())][0], link[1]
        if re.match(r"[a-z][a-z+.-]*:", destination):
            continue
        path_text, _, anchor = destination.partition("#")
        path = (ROOT / name).parent / path_text if path_text else ROOT / name
        if not path.exists():
            faults.append(f"{name}:{number}: the link leads to {destination}, which does not exist")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.resolve()):
            faults.append(f"{name}:{number}: {destination}: there is no such heading")


def exists(pattern: str) -> bool:
    options = [pattern]
    if braces := re.search(r"\{([^}]*)\}", pattern):
        options = [pattern.replace(braces[0], option) for option in braces[1].split(",")]
    return all(any(ROOT.glob(option.rstrip("/."))) for option in options)


@functools.cache
def sources(place: str) -> str:
    """The sources below a place that may hold tests."""
    folder = ROOT / place
    files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.suffix in {".rs", ".mjs", ".py", ".go", ".java", ".kt", ".swift"})
    skipped = {"node_modules", "target"}
    return "\n".join(p.read_text() for p in files if not skipped & set(p.parts))


def is_test(place: str, name: str) -> bool:
    """Whether the place has a function or a generated test of that name, or a browser test of that title."""
    text = sources(place)
    if " " in name:
        return any(f"test({quote}{name}{quote}" in text for quote in "\"'`")
    last = re.escape(name.rsplit("::", 1)[-1])
    modules = name.split("::")[:-1]
    # A function; a line of a macro that makes tests; an entry of a list of named tests.
    known = re.search(rf'\b(?:fn|def|fun|func|void) {last}\b|^\s*{last}: \w|\("{last}"(, ?\w|\.to_owned)', text, re.MULTILINE)
    return bool(known) and all(re.search(rf"\bmod {re.escape(m)}\b", text) for m in modules)


def check_code(name: str, lines: list[tuple[int, str]]) -> None:
    for number, line in lines:
        for _, code in CODE.findall(line):
            code = code.strip()
            if test := TEST.fullmatch(code):
                if not (ROOT / test[1]).exists():
                    faults.append(f"{name}:{number}: `{test[1]}` does not exist")
                elif not is_test(test[1], test[2]):
                    faults.append(f"{name}:{number}: there is no test `{test[2]}` in {test[1]}")
            elif PATH.fullmatch(code) and not exists(code):
                faults.append(f"{name}:{number}: `{code}` does not exist")


def check_lists(name: str, lines: list[tuple[int, str]]) -> None:
    before = ""
    for number, line in lines:
        begins = re.match(r"(\d+)[.)] ", line)
        if begins and begins[1] != "1" and before.strip() and not re.match(r"\d+[.)] | ", before):
            faults.append(f"{name}:{number}: “{line[:20]}” begins a list in a paragraph; put the number on the line before")
        before = line


def check_promises() -> None:
    page = ROOT / "docs/promises.md"
    for part in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)[1:]:
        title = part.splitlines()[0]
        if re.match(r"## \d+\. ", title) and not any(TEST.fullmatch(code) for _, code in CODE.findall(part)):
            faults.append(f"docs/promises.md: “{title[3:]}” names no test")


def main() -> None:
    names = [name for name in tracked() if name.endswith(".md")]
    for name in names:
        lines = prose((ROOT / name).read_text())
        check_links(name, lines)
        check_code(name, lines)
        check_lists(name, lines)
    check_promises()
    for name, most in MAX_LINES.items():
        count = len((ROOT / name).read_text().splitlines())
        if count > most:
            faults.append(f"{name}: has {count} lines; at most {most} are meant")
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"{len(names)} documents: links, paths and tests exist")


if __name__ == "__main__":
    main()
