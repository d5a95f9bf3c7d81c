"""Runs the commands of every guide and runbook against a running towpath, and holds them to what
their page says.

A page is what its readers see; what only this program needs stands in HTML comments:

    <!-- run: SHELL -->          runs, unseen, before what follows
    <!-- name JOB: SHELL -->     what it prints is meant by the word JOB in the commands that follow
    <!-- says: TEXT -->          the block above printed this; several of them, all of it
    <!-- says not: TEXT -->      it did not
    <!-- code: 3 -->             its last command ended with this code; else every one with 0
    <!-- until: TEXT -->         it runs on and is ended when it has printed this
    <!-- skip: WHY -->           the block that follows does not run
    <!-- from: FILE -->          the fence that follows stands in that file of the repository
    <!-- file: FILE -->          the fence that follows is written to that file, beside the instance

Indented blocks and fences marked `sh` or `sql` run, if they look like commands or SQL; a comment behind a
command (`# …`) is the reader's. A block that only exports settings counts for the rest of the page.
`towpath up`, `serve` and `route` do not run: the instance runs already. What follows `until`, `says` and `says not`
may end before the line does. Each page has an instance of its own.
"""

import re
from concurrent.futures import ThreadPoolExecutor

from instance import Instance

# At a time; each is a PostgreSQL and a towpath.
PAGES_AT_ONCE = 2
COMMANDS = ("towpath ", "DATABASE_URL=$(", "curl ", "psql ", "pg_dump ", "pg_restore ", "echo ", "export ", "python3 ", "python ", "pip ", "node ", "npm ", "npx ", "cargo ", "TOWPATH_URL=", "TOKEN=", "cat ")
QUERIES = ("select ", "begin;", "insert ", "create ", "grant ", "update ")
# These run only when they are named: tests/clients names them, with nothing but the built packages on the path.
OF_CLIENTS = ("jobs-in-python.md", "jobs-in-rust.md", "jobs-in-typescript.md")
RUNS_ALREADY = re.compile(r"towpath (up|serve|route)( |$)|DATABASE_URL=\S+ towpath route")


def run(binary, root, words):
    """Runs the pages whose path contains one of these words, or all; answers what went wrong."""
    pages = sorted([*(root / "docs/guides").glob("*.md"), *(root / "docs/runbooks").glob("*.md")])
    pages = [page for page in pages if any(word in str(page) for word in words or [""])]
    pages = [page for page in pages if words or page.name not in OF_CLIENTS]
    with ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        done = list(pool.map(lambda page: run_page(binary, root, page), pages))
    return [failure for failures in done for failure in failures]


def run_page(binary, root, page):
    name = page.relative_to(root)
    steps = list(read(page.read_text()))
    blocks = [step for step in steps if step.kind == "block"]
    torn = [step for step in steps if step.kind == "from" and not stands_in(root / step.name, step.lines)]
    if torn:
        return [f"{name}:{step.line}: this does not stand in {step.name} any more" for step in torn]
    steps = [step for step in steps if step.kind != "from"]
    if not any(block.says or block.until for block in blocks):
        return [f"{name}: no command of this page is held to what it says"]
    instance = Instance(binary, root)
    try:
        instance.wait_ready()
        failures = walk(instance, name, steps)
    finally:
        instance.stop()
    print(f"{name}: {sum(len(block.lines) for block in blocks)} lines in {len(blocks)} blocks", flush=True)
    return failures


def walk(instance, name, steps):
    """Until the first failure: what follows would fail because of it."""
    names, exports = {}, ""
    for step in steps:
        step.name_all(names)
        script = step.script()
        if not script:
            continue
        if all(line.startswith(("export TOWPATH_", "export DATABASE_URL=")) for line in step.lines):
            exports += script + "\n"
        code, printed = instance.shell(exports + script, step.until)
        problems = step.problems(code, printed)
        if step.kind == "name":
            names[step.name] = printed.strip()
            problems = problems or ([] if printed.strip() else ["it printed nothing"])
        if problems:
            told = "\n  ".join(problems)
            return [f"{name}:{step.line}:\n{script}\n--- printed (code {code}):\n{printed}\n---\n  {told}"]
    return []


def stands_in(file, lines):
    """Whether lines stand in a file, one after the other, however deep they are indented there."""
    there = [line.strip() for line in file.read_text().splitlines()]
    wanted = [line.strip() for line in lines]
    return any(there[at:at + len(wanted)] == wanted for at in range(len(there)))


class Step:
    """A block of a page, or a hidden command."""

    def __init__(self, kind, line, lines, name=None):
        self.kind, self.line, self.lines, self.name = kind, line, lines, name
        self.code, self.says, self.says_not, self.until = 0, [], [], None

    def name_all(self, names):
        def named(text):
            for word, value in names.items():
                text = re.sub(rf"(?<![\w$-]){word}(?![\w=])", lambda _: value, text)
            return text
        self.lines, self.says, self.says_not = ([named(text) for text in texts] for texts in (self.lines, self.says, self.says_not))

    def script(self):
        text = "\n".join(line for line in self.lines if not RUNS_ALREADY.match(line))
        if self.kind == "block" and text.lower().startswith(QUERIES):
            return f"towpath db psql -- -X -v ON_ERROR_STOP=1 <<'SQL'\n{text}\nSQL"
        # Every command counts, and the last one's code is the block's.
        return f"set -e\n{text}" if text.strip() else ""

    def problems(self, code, printed):
        found = []
        if code != self.code:
            found.append(f"it ended with {code}, not {self.code}")
        found += [f"it does not say: {text}" for text in self.says if text not in printed]
        if self.until and self.until not in printed:
            found.append(f"it ended before it said: {self.until}")
        found += [f"it says: {text}" for text in self.says_not if text in printed]
        return found


def read(text):
    """The steps of a page, in order."""
    lines = text.splitlines()
    last, skip, at = None, False, 0
    steps = []
    while at < len(lines):
        line = lines[at]
        if line.startswith("<!--"):
            end = next(n for n in range(at, len(lines)) if "-->" in lines[n])
            comment = "\n".join(lines[at:end + 1])[4:].split("-->")[0].strip()
            word, _, rest = comment.partition(":")
            rest = rest.strip()
            if word == "run":
                steps.append(Step("run", at + 1, rest.splitlines()))
            elif word.startswith("name "):
                steps.append(Step("name", at + 1, rest.splitlines(), word[5:]))
            elif word == "skip":
                skip = True
            elif word == "from":
                fence = next(n for n in range(end + 1, len(lines)) if lines[n].startswith("```"))
                close = next(n for n in range(fence + 1, len(lines)) if lines[n].startswith("```"))
                steps.append(Step("from", fence + 1, lines[fence + 1:close], rest))
            elif word == "file":
                fence = next(n for n in range(end + 1, len(lines)) if lines[n].startswith("```"))
                close = next(n for n in range(fence + 1, len(lines)) if lines[n].startswith("```"))
                body = ["cat > " + rest + " <<'WRITTEN'", *lines[fence + 1:close], "WRITTEN"]
                steps.append(Step("run", fence + 1, [f'mkdir -p "$(dirname {rest})"', *body]))
            elif word == "says":
                last.says.append(rest)
            elif word == "says not":
                last.says_not.append(rest)
            elif word == "code":
                last.code = int(rest)
            elif word == "until":
                last.until = rest
            at = end + 1
            continue
        block, end = None, at + 1
        fence = re.match(r"```(\w*)", line)
        if fence:
            end = next(n for n in range(at + 1, len(lines)) if lines[n].startswith("```")) + 1
            block = lines[at + 1:end - 1] if fence.group(1) in ("sh", "sql") else None
        elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip() or lines[at - 1].startswith("<!--")):
            while end < len(lines) and (lines[end].startswith("    ") or (not lines[end].strip() and end + 1 < len(lines) and lines[end + 1].startswith("    "))):
                end += 1
            block = [part[4:] for part in lines[at:end]]
        if block is not None:
            first = block[0].lower()
            if first.startswith(tuple(word.lower() for word in COMMANDS)) or first.startswith(QUERIES):
                if not skip:
                    last = Step("block", at + 1, block)
                    steps.append(last)
                else:
                    last = Step("block", at + 1, [])
            skip = False
        at = end
    return steps
