// The five commands of a peer, written once: what is timed, from where to where.
// The same as measure/src/lib.rs for Rust, line by line; change both.

import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

export const singleConnections = 8;
export const batchConnections = 4;
const batchJobs = 1000;
const processWaitMax = 120_000;
const pickupWaitMax = 5_000;
const note = "thirty-two bytes of nothing much";

let calls = 0;
let pickedUp = () => {};

// The whole work of every handler.
export function started() {
  calls += 1;
  pickedUp(performance.now());
}

// What every job carries.
export const payload = (number) => ({ number, note });

// `queue` has setup(url), connect(url, connections) -> { enqueueOne(number),
// enqueueMany(numbers), allFinished(jobs) } and work(url) -> stop().
export async function run(queue) {
  const url = process.env.DATABASE_URL;
  const [command, amount] = [process.argv[2], Number(process.argv[3] ?? 0)];
  const commands = { setup, single, batch, process: work, pickup };
  if (!url || !commands[command]) {
    console.error("usage: DATABASE_URL=... setup | single SECONDS | batch JOBS | process JOBS | pickup SAMPLES");
    process.exit(2);
  }
  console.log(JSON.stringify(await commands[command](queue, url, amount)));
  // Some peers keep timers and connections that nobody can stop.
  process.exit(0);
}

async function setup(queue, url) {
  await queue.setup(url);
  return {};
}

// Single enqueues for some seconds, one at a time on each connection.
async function single(queue, url, seconds) {
  const client = await queue.connect(url, singleConnections);
  const clock = performance.now();
  let jobs = 0;
  const loop = async () => {
    while (performance.now() - clock < seconds * 1000) await client.enqueueOne(jobs++);
  };
  await Promise.all(Array.from({ length: singleConnections }, loop));
  return timed(jobs, clock);
}

// Batches until `jobs` are enqueued, one at a time on each connection.
async function batch(queue, url, jobs) {
  if (jobs % batchJobs !== 0) throw new Error(`the number of jobs must be a multiple of ${batchJobs}`);
  const client = await queue.connect(url, batchConnections);
  const clock = performance.now();
  let next = 0;
  const loop = async () => {
    while (next < jobs) {
      const first = next;
      next += batchJobs;
      await client.enqueueMany(Array.from({ length: batchJobs }, (_, index) => first + index));
    }
  };
  await Promise.all(Array.from({ length: batchConnections }, loop));
  return timed(jobs, clock);
}

// From the start of the worker until the database says that all jobs are finished.
async function work(queue, url, jobs) {
  const observer = await queue.connect(url, 1);
  const clock = performance.now();
  const stop = await queue.work(url);
  // Asking the database is work for it, so it is asked only when every handler was called.
  while (calls < jobs || !(await observer.allFinished(jobs))) {
    if (performance.now() - clock > processWaitMax) throw new Error(`only ${calls} of ${jobs} jobs ran in time`);
    await sleep(2);
  }
  const answer = timed(jobs, clock);
  if (calls !== jobs) throw new Error(`${calls} handler calls for ${jobs} jobs`);
  // The result stands; a slow stop must not hold up the next peer.
  await Promise.race([stop(), sleep(pickupWaitMax)]);
  return answer;
}

// One job at a time on an idle worker: from before the enqueue until the handler starts.
async function pickup(queue, url, samples) {
  const client = await queue.connect(url, 1);
  const stop = await queue.work(url);
  const millis = [];
  // The first ones pay for connections and plans.
  for (let number = 0; number < samples + 20; number++) {
    // Uneven pauses, so that nobody's timer falls into step with ours.
    await sleep(8 + ((number * 7) % 11));
    const handled = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("a job was not picked up")), pickupWaitMax);
      pickedUp = (at) => (clearTimeout(late), resolve(at));
    });
    const clock = performance.now();
    await client.enqueueOne(number);
    millis.push((await handled) - clock);
  }
  await Promise.race([stop(), sleep(pickupWaitMax)]);
  millis.splice(0, 20);
  millis.sort((a, b) => a - b);
  const at = (share) => Number(millis[Math.round((millis.length - 1) * share)].toFixed(3));
  return { jobs: samples, p50_ms: at(0.5), p99_ms: at(0.99) };
}

const timed = (jobs, clock) => ({ jobs, seconds: Number(((performance.now() - clock) / 1000).toFixed(4)) });
