#!/usr/bin/env node
// @ts-check
// A Towpath worker for Node.js 20 or newer, without dependencies; types are in the comments,
// so that TypeScript checks it and Node runs it as it is.
//
//     TOWPATH_URL=http://127.0.0.1:4437 EXECUTOR_TOKEN=tpx_... node worker.mjs
//
// Make the token with: towpath executor token create NAME
// Stops after the job in hand on SIGINT or SIGTERM.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** @typedef {{ job_id: string, attempt: number }} Held */
/** @typedef {Held & { job_kind: string, payload_json: Record<string, unknown> }} Job */
/** @typedef {(percent: number, message: string) => Promise<unknown>} Progress */

const url = `${process.env.TOWPATH_URL ?? "http://127.0.0.1:4437"}/api/v1/jobs/`;
const headers = {
  authorization: `Bearer ${process.env.EXECUTOR_TOKEN}`,
  "towpath-worker": `${hostname()}-${process.pid}`,
};
const leaseSeconds = 60;
let stopping = false;

/** Somebody else has the job now: stop working on it. */
class LeaseLost extends Error {}

/** @param {string} verb @param {object} body @returns {Promise<any>} */
async function call(verb, body = {}) {
  const signal = AbortSignal.timeout(60_000);
  const response = await fetch(url + verb, { method: "POST", headers, body: JSON.stringify(body), signal });
  const answer = await response.json();
  if (response.status === 409) throw new LeaseLost(answer.detail);
  if (!response.ok) throw new Error(`${verb}: ${response.status} ${answer.error}: ${answer.detail}`);
  return answer;
}

/**
 * Your work. What it throws is recorded, and the job is tried again later.
 * @param {Job} job @param {Progress} progress
 */
async function run(job, progress) {
  if (job.payload_json.fail) throw new TypeError("told to fail");
  await progress(50, "half way");
  console.log("done", job.job_kind, JSON.stringify(job.payload_json));
}

/** @param {Job} job */
async function work(job) {
  const held = { job_id: job.job_id, attempt: job.attempt };
  await call("start", held);
  // A job may take longer than its lease. A failed extension is heard by the next call.
  const extend = () => call("extend", { ...held, seconds: leaseSeconds }).catch(() => {});
  const keep = setInterval(extend, (leaseSeconds * 1000) / 3);
  try {
    await run(job, (percent, message) => call("progress", { ...held, percent, message }));
    await call("ack", held);
  } catch (error) {
    if (error instanceof LeaseLost) return console.log("dropped:", error.message);
    await call("fail", { ...held, error: String(error) });
  } finally {
    clearInterval(keep);
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => (stopping = true));
console.log("working");
while (!stopping) {
  try {
    await call("heartbeat");
    const { jobs } = await call("claim", { wait_seconds: 5, lease_seconds: leaseSeconds });
    for (const job of jobs) await work(job);
  } catch (error) {
    // The server is away, or a gate is closed.
    console.log("waiting:", String(error));
    await sleep(2000);
  }
}
