// A walk through the dashboard of a running `towpath demo`, as a person would take it. Anything
// unexpected ends it.
import assert from "node:assert/strict";
import { act } from "./actions.mjs";
import { browser, json, open, places, problems, towpath, until, url } from "./browser.mjs";
import { job } from "./job.mjs";
import { typed } from "./keyboard.mjs";
import { eventSource } from "./eventsource.mjs";
import { stored } from "./stored.mjs";
import { look } from "./looks.mjs";

// What the demo does not make by itself: markup in an error, a process that waits for its moment, a
// receiver that is not there, an executor that died, a session that stays (and is the first of its list).
const evil = "<img src=x onerror=document.title='broken'>";
towpath("job", "enqueue", "towpath.fail", "--payload", JSON.stringify({ permanent: true, message: evil }));
towpath("message", "send", "--to", "ann@demo.invalid", "--subject", "Later", "--text", "Hi", "--at", "1h");
towpath("routes", "add", "broken", "--to-webhook", "http://127.0.0.1:9/nobody", "--domain", "shop", "--retry", "1,1,1,1,1,1");
towpath("routes", "enable", "broken", "--why", "to see a circuit open");

towpath("subscribe", "00000000-0000-7000-8000-000000000001", "demo.news");

await until("a dead letter", () => json("dlq", "list").dead_letters.length > 2);
await until("a dead letter of a route", () => json("routes", "dlq", "list").dead_letters.length > 0);
await until("a process that succeeded", () => json("process", "list", "--state", "succeeded").processes.length > 0);
await until("sessions", () => json("sessions", "list").sessions.length > 2);
await until("a circuit that opened", () => json("routes", "list").some(route => route.route_name === "broken" && route.circuit === "open"));
await until("an executor that died", () => json("queue", "health").executors.some(row => row.freshness === "stale"));

const found = await places();
await look(found);
await typed(found);
const done = await act();

// A page that is open shows what happens elsewhere.
const page = await open();
await page.goto(`${url}/ui/jobs?kind=report.weekly`);
await page.locator(".dot.on").waitFor();
const fresh = json("job", "enqueue", "report.weekly").job_id;
await page.locator(`a[href="/ui/jobs/${fresh}"]`).waitFor();

// The page of a job follows the job's stream.
await job(page);

// A stream's page appends what comes.
towpath("stream", "create", "news", "--content-type", "text/plain");
towpath("stream", "append", "news", "the first line");
await page.goto(`${url}/ui/stream?id=news`);
await page.getByText("the first line").waitFor();
towpath("stream", "append", "news", "the second line");
await page.getByText("the second line").waitFor();

// Markup in an error is read as text; what was done is in the audit.
await page.goto(`${url}/ui/dead-letters?kind=towpath.fail`);
assert.ok(await page.getByText(evil).first().isVisible());
await page.goto(`${url}/ui/audit`);
assert.ok(await page.getByText("a walk").first().isVisible());

// An event says who receives it; a process shows its facts.
await page.goto(`${url}/ui/events`);
await page.locator("table.rows tbody tr a").last().click();
await page.getByRole("heading", { name: "Recipients" }).waitFor();
await page.goto(`${url}/ui/processes`);
await page.locator("table.rows tbody tr a").first().click();
await page.locator(".timeline li").first().waitFor();

// Everything that matches, after a preview.
await page.goto(`${url}/ui/jobs?kind=report.weekly`);
await page.locator("summary", { hasText: "Act on all matches" }).click();
await page.getByRole("button", { name: "Preview: cancel" }).click();
await page.getByText("cancel 1 job?").waitFor();
await page.getByRole("button", { name: "Yes, cancel them" }).click();
await page.getByText("1 done").waitFor();

// Nothing that is stored acts, nor anybody elsewhere.
await stored();
await eventSource();

await browser.close();
assert.deepEqual(problems, []);
console.log(`dashboard: ${found.all.length} pages in three looks and by keyboard, ${done.length} actions, live; no console error, no other host`);
