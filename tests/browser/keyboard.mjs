// By keyboard alone: to every page, to everything on it, to a filter, a row and into it.
import assert from "node:assert/strict";
import { json, open, url } from "./browser.mjs";

// What a page offers, as far as it can be seen; more would only be more of the same rows.
const OFFERED_MAX = 80;

async function everythingIsReached(page, name) {
  const offered = await page.evaluate(() => [...document.querySelectorAll("a[href], button, summary, input:not([type=hidden]), select, textarea")]
    .filter(element => !element.disabled && element.checkVisibility()).length);
  const reached = new Set();
  for (let step = 0; step < Math.min(offered, OFFERED_MAX); step += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      element.dataset.reached ??= String(Math.random());
      return { id: element.dataset.reached, tag: element.tagName, seen: element.checkVisibility() };
    });
    assert.ok(at.tag !== "BODY" && at.seen, `${name}: Tab number ${step + 1} of ${offered} reaches nothing`);
    reached.add(at.id);
  }
  assert.equal(reached.size, Math.min(offered, OFFERED_MAX), `${name}: Tab runs in a circle`);
}

export async function typed({ navigation }) {
  const page = await open();
  await page.goto(`${url}/ui`);
  // Standing still, so that nothing is replaced under the fingers.
  await page.keyboard.press("p");
  for (const { path, key, name } of navigation) {
    await page.keyboard.press("Escape");
    // Also when the page is the one it was.
    const loaded = page.waitForEvent("load");
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await loaded;
    await page.waitForURL(url + path);
    await everythingIsReached(page, name);
  }
  await page.keyboard.press("Escape");
  await page.keyboard.press("p");

  const waiting = json("job", "enqueue", "report.monthly", "--payload", '{"month": "May"}').job_id;
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
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog#keys").isVisible());
  await page.keyboard.press("Escape");
  const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.keyboard.press("t");
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), before);
  await page.context().close();
}
