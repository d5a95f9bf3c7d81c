// The browser, the program under test, and everything that must never happen on a page.
import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const environment = process.env;
export const url = environment.TOWPATH_TEST_URL;
export const pictures = environment.TOWPATH_TEST_PICTURES;
export const templates = environment.TOWPATH_TEST_TEMPLATES;

// The program, beside the running one, without the variables of the user who runs this.
const clean = Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith("TOWPATH_")));
export const towpath = (...words) => execFileSync(environment.TOWPATH_TEST_BIN, words, {
  env: { ...clean, TOWPATH_DATA: environment.TOWPATH_TEST_DATA, TOWPATH_LISTEN: url.replace("http://", ""), TOWPATH_WEBHOOK_LOCAL: "true" },
  encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
export const json = (...words) => JSON.parse(towpath(...words, "--json"));

// Asks until the answer will do; a demo needs a moment to have everything.
export async function until(what, good) {
  for (const deadline = Date.now() + 60_000; ; ) {
    if (await good()) return;
    if (Date.now() > deadline) throw new Error(`never: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}

export const browser = await chromium.launch({ executablePath: environment.TOWPATH_TEST_BROWSER, args: [
  "--no-sandbox",
  // A name that means this machine, as a rebound one does; and no help from the browser against pages that ask it.
  "--host-resolver-rules=MAP rebound.example 127.0.0.1",
  "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
] });
export const problems = [];
export const looks = {
  light: { colorScheme: "light", viewport: { width: 1280, height: 900 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  narrow: { colorScheme: "light", viewport: { width: 390, height: 844 } },
};

export async function open(options = looks.light) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", message => { if (["error", "warning"].includes(message.type())) problems.push(`${page.url()}: ${message.text()}`); });
  page.on("pageerror", error => problems.push(`${page.url()}: ${error}`));
  page.on("request", request => { if (!request.url().startsWith(url)) problems.push(`${page.url()} asks ${request.url()}`); });
  page.on("response", response => { if (response.status() >= 500) problems.push(`${response.url()} answers ${response.status()}`); });
  return page;
}

// Every page there is: those of the navigation, and behind each list its first row.
export async function places() {
  const page = await open();
  await page.goto(`${url}/ui`);
  const found = await page.locator("nav[aria-label=Pages] a").evaluateAll(links =>
    links.map(link => ({ path: link.getAttribute("href"), key: link.dataset.key, name: link.textContent })));
  const behind = [];
  for (const { path, name } of found) {
    await page.goto(url + path);
    const row = page.locator("table.rows tbody tr a[href^='/ui/']").first();
    if (await row.count()) behind.push({ path: await row.getAttribute("href"), name: `${name}, one` });
  }
  await page.context().close();
  return { navigation: found, all: [...found, ...behind] };
}
