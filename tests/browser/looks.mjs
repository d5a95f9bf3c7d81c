// Every page, light and dark, wide and narrow: a heading, one background, nothing wider than the screen.
import assert from "node:assert/strict";
import { looks, open, pictures, url } from "./browser.mjs";

export async function look({ all }) {
  const tooWide = [];
  for (const [look, options] of Object.entries(looks)) {
    const page = await open(options);
    const grounds = new Set();
    for (const { path, name } of all) {
      await page.goto(url + path);
      assert.ok(await page.locator("h1").first().isVisible(), `${path} has no heading`);
      assert.notEqual(await page.title(), "broken", `${path} ran markup`);
      grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      const wide = await page.evaluate(() => {
        const over = document.documentElement.scrollWidth - innerWidth;
        const widest = [...document.querySelectorAll("main *")].filter(element => element.getBoundingClientRect().right > innerWidth);
        return over > 0 && `${over} px: ${widest.slice(0, 3).map(element => element.outerHTML.slice(0, 120)).join(" ")}`;
      });
      if (wide) tooWide.push(`${path} (${look}) ${wide}`);
      const file = name.toLowerCase().replace(", one", "-one").replaceAll(" ", "-");
      await page.screenshot({ path: `${pictures}/${look}-${file}.png` });
    }
    assert.equal(grounds.size, 1, `one background (${look}): ${[...grounds]}`);
    await page.context().close();
  }
  assert.deepEqual(tooWide, []);
}
