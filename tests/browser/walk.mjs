// A walk through the dashboard, as a person would take it. Anything unexpected ends it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const { TOWPATH_TEST_URL: url, TOWPATH_TEST_BROWSER: executablePath, TOWPATH_TEST_BIN: binary,
  TOWPATH_TEST_DATA: data, TOWPATH_TEST_PICTURES: pictures } = process.env;
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOWPATH_")));
const towpath = (...words) => execFileSync(binary, words, {
  env: { ...environment, TOWPATH_DATA: data, TOWPATH_LISTEN: url.replace("http://", "") }, encoding: "utf8" });

// Something to look at, in every plane.
const evil = "<img src=x onerror=document.title='broken'>";
for (let order = 1; order <= 12; order += 1) towpath("job", "enqueue", "towpath.noop", "--payload", JSON.stringify({ order }));
towpath("job", "enqueue", "towpath.fail", "--payload", JSON.stringify({ permanent: true, message: evil }));
const waiting = JSON.parse(towpath("job", "enqueue", "report.monthly", "--payload", '{"month": "May"}', "--json")).job_id;
towpath("schedule", "add", "nightly", "30 2 * * mon-fri", "towpath.noop", "--zone", "Europe/Berlin");
towpath("stream", "create", "news", "--content-type", "text/plain");
towpath("stream", "append", "news", "the first line");
towpath("events", "emit", "sales", "order.placed", "--payload", '{"order": 7}');
towpath("message", "send", "--to", "ann@example.com", "--subject", "Hello", "--text", "Hi");

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const problems = [];
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", message => { if (["error", "warning"].includes(message.type())) problems.push(`${page.url()}: ${message.text()}`); });
  page.on("pageerror", error => problems.push(`${page.url()}: ${error}`));
  page.on("request", request => { if (!request.url().startsWith(url)) problems.push(`${page.url()} asks ${request.url()}`); });
  page.on("response", response => { if (response.status() >= 500) problems.push(`${response.url()} answers ${response.status()}`); });
  return page;
}
const places = ["", "/jobs", "/dead-letters", "/events", "/routes", "/processes", "/schedules", "/executors", "/streams", "/gates", "/audit"];

// Every page, light and dark, wide and narrow, without anything wider than the screen.
for (const [name, options] of Object.entries({
  light: { colorScheme: "light", viewport: { width: 1280, height: 900 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  narrow: { colorScheme: "light", viewport: { width: 390, height: 844 } },
})) {
  const page = await open(options);
  const grounds = new Set();
  for (const place of places) {
    await page.goto(`${url}/ui${place}`);
    assert.ok(await page.locator("h1").first().isVisible(), place);
    assert.notEqual(await page.title(), "broken", `${place} ran markup`);
    grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${place} is ${wide} px too wide (${name})`);
    await page.screenshot({ path: `${pictures}/${name}-${place.slice(1) || "overview"}.png` });
  }
  assert.equal(grounds.size, 1, `one background (${name}): ${[...grounds]}`);
  await page.context().close();
}

// By keyboard alone: to the jobs, to the filter, to a row, into it, and an action on it.
const page = await open({ viewport: { width: 1280, height: 900 } });
await page.goto(`${url}/ui`);
await page.keyboard.press("g");
await page.keyboard.press("j");
await page.waitForURL("**/ui/jobs");
await page.keyboard.press("/");
await page.keyboard.type("report.monthly");
await page.keyboard.press("Enter");
await page.waitForURL("**kind=report.monthly**");
assert.equal(await page.locator("table.rows tbody tr").count(), 1);
await page.keyboard.press("j");
await page.keyboard.press("Enter");
await page.waitForURL(`**/ui/jobs/${waiting}`);
assert.ok(await page.getByText("Why is it not running?").isVisible());
await page.locator("summary", { hasText: "Cancel" }).focus();
await page.keyboard.press("Enter");
await page.keyboard.press("Tab");
await page.keyboard.type("no longer needed");
await page.keyboard.press("Enter");
await page.locator("h1 .state.cancelled").waitFor();
assert.match(towpath("job", "show", waiting), /no longer needed/);
await page.keyboard.press("?");
assert.ok(await page.locator("dialog#keys").isVisible());
await page.keyboard.press("Escape");
const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
await page.keyboard.press("t");
assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), before);

// A page that is open hears of what happens elsewhere.
await page.goto(`${url}/ui/jobs`);
await page.locator(".dot.on").waitFor();
const fresh = JSON.parse(towpath("job", "enqueue", "report.weekly", "--json")).job_id;
await page.locator(`a[href="/ui/jobs/${fresh}"]`).waitFor();

// A stream's page appends what comes.
await page.goto(`${url}/ui/stream?id=news`);
await page.getByText("the first line").waitFor();
towpath("stream", "append", "news", "the second line");
await page.getByText("the second line").waitFor();

// A dead letter is read as text, decided on and run again.
await page.goto(`${url}/ui/dead-letters`);
assert.ok(await page.getByText(evil).first().isVisible());
await page.locator("table.rows tbody tr a").first().click();
await page.locator("summary", { hasText: "Replay" }).click();
await page.getByRole("button", { name: "Replay" }).click();
await page.getByText("runs again as job").waitFor();
await page.goto(`${url}/ui/audit`);
assert.ok(await page.getByText("dlq replay").isVisible());

// A gate is closed with a reason, and a schedule runs now.
await page.goto(`${url}/ui/gates`);
const gate = page.locator("tr", { hasText: "queue.notify.enabled" }).first();
await gate.locator("summary").click();
await gate.locator("input[name=reason]").fill("a walk");
await gate.getByRole("button", { name: "Close" }).click();
await page.getByText("queue.notify.enabled is false").waitFor();
await page.goto(`${url}/ui/schedules`);
await page.locator("summary", { hasText: "Run now" }).click();
await page.getByRole("button", { name: "Run now" }).click();
await page.getByText("enqueued as job").waitFor();

// An event says who hears it; a process shows its facts.
await page.goto(`${url}/ui/events`);
await page.locator("table.rows tbody tr a").last().click();
await page.getByText("Who hears it, and why").waitFor();
await page.goto(`${url}/ui/processes`);
await page.locator("table.rows tbody tr a").first().click();
await page.locator(".timeline li").first().waitFor();

// Everything that matches, after a preview.
await page.goto(`${url}/ui/jobs?kind=report.weekly`);
await page.locator("summary", { hasText: "Act on everything" }).click();
await page.getByRole("button", { name: "Preview: cancel" }).click();
await page.getByText("cancel 1 jobs?").waitFor();
await page.getByRole("button", { name: "Yes, cancel them" }).click();
await page.getByText("1 done").waitFor();

await browser.close();
assert.deepEqual(problems, []);
console.log(`dashboard: ${places.length} pages in three looks, by keyboard, live; no console error, no other host`);
