// S09: what somebody stored never runs with the rights of the dashboard, and a page of elsewhere neither stores nor acts.
import assert from "node:assert/strict";
import { browser, json, url } from "./browser.mjs";

const gate = () => json("gate", "list").find(gate => gate.key === "event.routing.enabled").value;

// What a page that is let do so would do: take the token out of a form of ours, and close a gate with it.
const attack = `<!doctype html><title>quiet</title><script>
  document.title = "ran";
  fetch("/ui/gates").then(page => page.text()).then(page => {
    const csrf = page.match(/name="csrf" value="([^"]+)"/)[1];
    const body = new URLSearchParams({ csrf, do: "close", target: "event.routing.enabled", reason: "an attack" });
    return fetch("/ui/gates", { method: "POST", body });
  });
</script><form method="post" action="/ui/gates"><button>send</button></form>`;

export async function stored() {
  const before = gate();
  // Stored by somebody who may: opened, it is shown and does nothing.
  for (const [name, type, body] of [
    ["attack", "text/html", attack],
    ["attack-svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"><script>${attack.match(/<script>([^]*)<\/script>/)[1]}</script></svg>`],
    ["attack-xhtml", "application/xhtml+xml", `<html xmlns="http://www.w3.org/1999/xhtml"><head><title>quiet</title><script>document.title = "ran"</script></head></html>`],
  ]) {
    const made = await fetch(`${url}/v1/stream/${name}`, { method: "PUT", headers: { "content-type": type }, body });
    assert.equal(made.status, 201);
    const page = await (await browser.newContext()).newPage();
    const asked = [];
    page.on("request", request => asked.push(request.url()));
    await page.goto(`${url}/v1/stream/${name}`);
    assert.notEqual(await page.title(), "ran", `${name} ran`);
    // The browser's own words for an origin without rights.
    assert.equal(await page.evaluate("self.origin"), "null", name);
    if (type === "text/html") await page.locator("button").click();
    assert.deepEqual(asked.filter(asked => asked.includes("/ui")), [], `${name} reached the dashboard`);
    await page.context().close();
  }
  await fromElsewhere();
  assert.deepEqual(gate(), before, "a gate was moved");
}

// A page of another site, whose browser lets it try.
async function fromElsewhere() {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("http://evil.example/**", route => route.fulfill({ contentType: "text/html", body: "<title>evil</title>" }));
  await page.goto("http://evil.example/");
  const results = await page.evaluate(async url => {
    const tried = async (path, options) => {
      try { return (await fetch(url + path, options)).type; } catch { return "refused"; }
    };
    return {
      store: await tried("/v1/stream/elsewhere", { method: "PUT", headers: { "content-type": "text/html" }, body: "<script>1</script>" }),
      append: await tried("/v1/stream/attack", { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: "more" }),
      read: await tried("/v1/stream/attack", {}),
      page: await tried("/ui/gates", {}),
      act: await tried("/ui/gates", { method: "POST", mode: "no-cors", body: new URLSearchParams({ do: "close", target: "event.routing.enabled" }) }),
    };
  }, url);
  assert.deepEqual(results, { store: "refused", append: "opaque", read: "refused", page: "refused", act: "opaque" });
  assert.equal((await fetch(`${url}/v1/stream/elsewhere`)).status, 404, "a page of elsewhere stored something");
  assert.equal(await (await fetch(`${url}/v1/stream/attack`)).text(), attack, "a page of elsewhere appended something");
  // A name of its own that means this machine.
  const rebound = await page.goto(url.replace("127.0.0.1", "rebound.example") + "/ui/gates");
  assert.equal(rebound.status(), 421);
  await context.close();
}
