// The page of a job that runs: a worker over HTTP reports and appends, and the page follows the job's stream.
import assert from "node:assert/strict";
import { json, towpath, until, url } from "./browser.mjs";

export async function job(page) {
  towpath("executor", "add", "walker", "--executor", "external_worker", "--job-kind", "walk.import", "--enable");
  const { token } = json("executor", "token", "create", "walker", "--may-enqueue");
  const call = async (verb, body) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const response = await fetch(`${url}/api/v1/jobs/${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
    assert.ok(response.ok, `${verb}: ${response.status} ${await response.clone().text()}`);
    return response.json();
  };
  const { job_id } = await call("enqueue", { job_kind: "walk.import" });
  let lease;
  await until("the job is claimed", async () => {
    const [claimed] = (await call("claim", { kinds: ["walk.import"], wait_seconds: 5 })).jobs;
    lease = claimed && { job_id: claimed.job_id, attempt: claimed.attempt };
    return lease;
  });
  assert.equal(lease.job_id, job_id);
  await call("progress", { ...lease, percent: 10, message: "begun" });

  const follows = page.waitForResponse(response => response.url().includes(`/ui/stream/follow?project=jobs&id=job`));
  await page.goto(`${url}/ui/jobs/${job_id}`);
  assert.equal((await follows).status(), 200);
  await page.getByText("10 %: begun").waitFor();
  await page.evaluate(() => { window.stayed = true; });
  await call("progress", { ...lease, percent: 40, message: "half of it" });
  await page.getByText("40 %: half of it").waitFor();
  assert.equal(await page.locator("[data-progress] progress").evaluate(bar => bar.value), 40);
  await call(`${job_id}/append`, { attempt: lease.attempt, data: { page: 7, text: "<b>once</b>" } });
  const appended = page.locator("ol.messages li", { hasText: '{"page":7,"text":"<b>once</b>"}' });
  await appended.waitFor();
  await call("ack", { ...lease, result: { pages: 7 } });
  await page.getByRole("heading", { name: "Result" }).waitFor();
  await page.locator("h1", { hasText: "succeeded" }).waitFor();
  assert.equal(await appended.count(), 1, "what was appended is there once");
  assert.equal(await page.evaluate(() => window.stayed), true, "all of that without loading the page again");
  // What a browser sees that comes later.
  await page.reload();
  await appended.waitFor();
  assert.equal(await page.locator("[data-follow]").count(), 0, "the stream of a job that has ended is closed");
}
