"""Prints the licences of every crate that is linked into the program, for one target.

Crates under MIT, BSD and Apache licences may be copied into a program if their notices go with it. A text that several
crates share is printed once.
"""

import json
import pathlib
import subprocess
import sys

NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def main(target):
    metadata = json.loads(
        subprocess.check_output(
            ["cargo", "metadata", "--format-version=1", "--locked", "--features=towpath-cli/jemalloc", f"--filter-platform={target}"]
        )
    )
    crates = linked(metadata)
    texts = {}
    for crate in crates:
        for text in notices(crate):
            texts.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    print("Towpath is linked with these crates, under the licences that are named and printed below.\n")
    for crate in crates:
        print(f"{crate['name']} {crate['version']}: {crate['license'] or 'see below'}")
    for text, names in texts.items():
        print(f"\n{'=' * 80}\n{', '.join(names)}\n\n{text}")


def linked(metadata):
    """The crates of others that the program reaches by ordinary dependencies, by name."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    [start] = [id for id, package in packages.items() if package["name"] == "towpath-cli"]
    reached, waiting = set(), [start]
    while waiting:
        id = waiting.pop()
        if id not in reached:
            reached.add(id)
            waiting += [dep["pkg"] for dep in nodes[id]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    found = [packages[id] for id in reached if packages[id]["source"]]
    return sorted(found, key=lambda crate: (crate["name"], crate["version"]))


def notices(crate):
    directory = pathlib.Path(crate["manifest_path"]).parent
    files = [file for file in sorted(directory.iterdir()) if file.is_file() and file.name.upper().startswith(NAMES)]
    return [file.read_text(errors="replace").strip() for file in files]


if __name__ == "__main__":
    main(sys.argv[1])
