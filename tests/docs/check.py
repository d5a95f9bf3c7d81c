"""Compares docs/reference with the program, and runs the commands of the guides."""

import sys
from pathlib import Path

import guides
import own_database
import reference
from instance import Instance

ROOT = Path(__file__).resolve().parents[2]


def main():
    binary, arguments = sys.argv[1], sys.argv[2:]
    write = arguments == ["--write"]
    failures = [] if arguments and not write else compare(binary, write)
    if not write and (not arguments or "README" in arguments):
        failures += own_database.run(binary, ROOT)
    if not write and arguments != ["README"]:
        failures += guides.run(binary, ROOT, arguments)
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


def compare(binary, write):
    instance = Instance(binary, ROOT)
    try:
        instance.wait_ready()
        made = reference.pages(instance, ROOT)
    finally:
        instance.stop()
    failures = []
    for path, text in made.items():
        file = ROOT / path
        if write:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            failures.append(f"{path} is not what the program says; write it again with ./dev docs")
    print(f"{'wrote' if write else 'compared'} {', '.join(made)}")
    return failures


main()
