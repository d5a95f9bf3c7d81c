// Every action that a template offers is done once, by keyboard, and its command is one we have.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { open, templates, towpath, url } from "./browser.mjs";

// What the templates offer, as `jobs:cancel`: where the form goes, and what it asks for.
export function offered() {
  const found = new Set();
  for (const file of readdirSync(templates)) {
    const text = readFileSync(`${templates}/${file}`, "utf8");
    const noun = file.replace(".html", "").replaceAll("_", "-");
    const here = noun.endsWith("s") && !noun.endsWith("ss") ? noun : noun.endsWith("ss") ? `${noun}es` : `${noun}s`;
    const kind = action => action.match(/\/ui\/([a-z-]+)/)?.[1] ?? here;
    for (const [, action, verb] of text.matchAll(/p::ask\([^,]+,\s*([^,]+),\s*"([^"]+)"/g)) found.add(`${kind(action)}:${verb}`);
    for (const [, action, verb] of text.matchAll(/<form method="post" action="([^"]+)">(?:(?!<\/form>)[^])*?name="do" value="([a-z-]+)"/g)) found.add(`${kind(action)}:${verb}`);
  }
  return found;
}

// Lists whose first rows offer what the newest rows may not.
const startingPoints = {
  jobs: ["/ui/jobs?kind=demo.archive", "/ui/jobs?kind=demo.import"],
  processes: ["/ui/processes?state=held", "/ui/processes?state=open"],
};
// The receiver of the demo refuses on purpose: that it was tried is enough.
const mayBeRefused = new Set(["routes:test"]);
// What closes, pauses and ends comes before what opens it again.
const order = ["close", "pause", "disable", "dry-run", "touch"];
const rank = key => { const at = order.indexOf(key.split(":")[1]); return at < 0 ? order.length : at; };

const actionOf = (form, verb) => `form[action^="/ui/${form}"]:has(input[name=do][value="${verb}"])`;

async function find(page, kind, verb) {
  for (const list of [...(startingPoints[kind] ?? []), `/ui/${kind}`]) {
    await page.goto(url + list);
    if (await page.locator(actionOf(kind, verb)).count()) return page.locator(actionOf(kind, verb)).first();
    const rows = await page.locator("table.rows tbody tr a[href^='/ui/']").evaluateAll(links => links.slice(0, 12).map(link => link.getAttribute("href")));
    for (const row of rows) {
      await page.goto(url + row);
      if (await page.locator(actionOf(kind, verb)).count()) return page.locator(actionOf(kind, verb)).first();
    }
  }
  return null;
}

export async function act() {
  const page = await open();
  const missing = [], done = [];
  for (const key of [...offered()].sort((one, other) => rank(one) - rank(other))) {
    const [kind, verb] = key.split(":");
    const form = await find(page, kind, verb);
    if (!form) { missing.push(key); continue; }
    const command = (await form.locator("code.cli").first().textContent()).trim();
    assert.match(command, /^towpath /, `${key} shows no command`);
    // Help is printed only if everything before it is a command of ours with these flags; words in
    // capitals stand for what a person chooses.
    towpath(...command.split(/\s+/).slice(1).filter(word => !/^[A-Z]+$/.test(word)), "--help");
    const summary = form.locator("xpath=ancestor::details[1]/summary");
    if (await summary.count()) {
      await summary.focus();
      await page.keyboard.press("Enter");
    }
    for (const input of await form.locator("input:not([type=hidden])").all()) {
      if (await input.inputValue()) continue;
      await input.focus();
      await page.keyboard.type(await input.getAttribute("name") === "target" ? "demo.import" : "a walk");
    }
    await form.locator("button").last().focus();
    await page.keyboard.press("Enter");
    const notice = page.locator("p.notice");
    await notice.waitFor();
    const good = await notice.evaluate(element => element.classList.contains("good"));
    assert.ok(good || mayBeRefused.has(key), `${key}: ${await notice.textContent()}`);
    done.push(key);
  }
  await page.context().close();
  assert.deepEqual(missing, [], "offered by a template and found on no page");
  return done;
}
