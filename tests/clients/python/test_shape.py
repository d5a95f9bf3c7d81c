"""One shape in all three languages: docs/reference/packages.md names what each package has, and the errors agree."""

from __future__ import annotations

import re
from pathlib import Path

import towpath as tp
from towpath import testing
from towpath.errors import SQLSTATES, WORDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/packages.md").read_text()
SOURCES = {
    "Rust": ["crates/towpath/src", "crates/worker/src", "crates/db/src", "crates/model/src"],
    "TypeScript": ["clients/typescript/src"],
    "Python": ["clients/python/src/towpath"],
}


def source(language: str) -> str:
    files = [file for part in SOURCES[language] for file in sorted((ROOT / part).rglob("*.*"))]
    return "\n".join(file.read_text() for file in files if file.suffix in (".rs", ".ts", ".py"))


def names(cell: str) -> list[str]:
    """The names in the inline code of a cell: `client.wait(id, timeout_seconds)` is wait."""
    found: list[str] = []
    for code in re.findall(r"`([^`]+)`", cell):
        called = re.split(r"[(,{:\]]| =| work", code.removeprefix("#[derive(").removeprefix("Failure::"))[0]
        found.append(called.strip("@#[…)").split(".")[-1])
    return [name for name in found if re.fullmatch(r"[A-Za-z_]{2,}", name)]


def missing(page: str, sources: dict[str, str]) -> list[str]:
    """What the tables with a column for each language name, and a language does not have."""
    absent: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[1] != "Rust":
            for language, cell in zip(SOURCES, cells[1:], strict=True):
                # Of another package, or of the language.
                known = {"CancellationToken", "AbortSignal", "Event", "Ok", "Err", "python"}
                absent += [
                    f"{language}: {name}"
                    for name in names(cell)
                    if name not in known and not re.search(rf"\b{name}\b", sources[language])
                ]
    return absent


def test_every_name_of_the_page_is_there() -> None:
    sources = {language: source(language) for language in SOURCES}
    assert len([line for line in PAGE.splitlines() if line.startswith("|")]) > 40, "the page has its tables"
    assert missing(PAGE, sources) == []


def test_the_checker_finds_a_name_that_is_missing() -> None:
    page = "| wait | `client.wait(id)` | `client.waitFor(id)` | `client.wait(id)` |"
    found = missing(page, {"Rust": "fn wait", "TypeScript": "wait(", "Python": "def wait"})
    assert found == ["TypeScript: waitFor"]


def test_the_words_of_errors_are_the_same() -> None:
    python = {word: kind.__name__ for word, kind in WORDS.items()}
    text = (ROOT / "clients/typescript/src/errors.ts").read_text()
    table = text.split("const byWord")[1].split("};")[0]
    assert dict(re.findall(r"^  (\w+): (\w+),$", table, re.MULTILINE)) == python
    states = text.split("const bySqlState")[1].split("};")[0]
    assert dict(re.findall(r'^  (TP\d+): "(\w+)",$', states, re.MULTILINE)) == SQLSTATES
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    page = {word: kind for kind, words in rows for word in re.findall(r"`(\w+)`", words)}
    assert page == python
    rust = (ROOT / "crates/db/src/door/error.rs").read_text().split("pub enum Error {")[1].split("\n}")[0]
    variants = set(re.findall(r"^    (\w+)\(", rust, re.MULTILINE))
    assert variants == {*python.values(), "Other"}


def test_the_options_are_the_same() -> None:
    sentence = PAGE.split("The options of enqueue are ")[1].split(".")[0]
    options = set(re.findall(r"`(\w+)`", sentence))
    assert options == set(tp.EnqueueOptions.__annotations__)
    camel = {re.sub(r"_(\w)", lambda letter: letter[1].upper(), name) for name in options}
    typescript = (ROOT / "clients/typescript/src/options.ts").read_text()
    interface = typescript.split("export interface EnqueueOptions {")[1].split("\n}")[0]
    assert set(re.findall(r"^  (\w+)\?:", interface, re.MULTILINE)) == camel
    rust = (ROOT / "crates/db/src/door/enqueue.rs").read_text()
    fields = rust.split("pub struct EnqueueOptions {")[1].split("\n}")[0]
    assert set(re.findall(r"^    (\w+): Option", fields, re.MULTILINE)) == options


def test_python_exports_what_the_page_names() -> None:
    for name in ("Client", "AsyncClient", "Context", "AsyncContext", "JobStatus", "JobState", "JobToken", "emit", "work"):
        assert name in tp.__all__
    assert {"run_until_drained", "expect_enqueued", "Ran"} <= set(dir(testing))
