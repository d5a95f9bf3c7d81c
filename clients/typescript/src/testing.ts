// @towpath/client/testing: run what is due in this process, and see what was enqueued.
import { AssertionError } from "node:assert";
import { isDeepStrictEqual } from "node:util";
import { Client, defaultClient } from "./client.js";
import type { ClientOptions } from "./client.js";
import { firstRow } from "./handle.js";
import type { Handle } from "./handle.js";
import type { RunnableJob } from "./job.js";
import { record } from "./record.js";
import { leaseOf, runOne } from "./run.js";
import type { ClaimedJob, Middleware, Outcome } from "./run.js";
import { isMayNotRegister } from "./worker.js";

/** One attempt that `runUntilDrained` ran. */
export interface Ran {
  id: string;
  kind: string;
  args: unknown;
  attempt: number;
  /** A permanent failure makes a dead letter at once; after another one there may be a retry. */
  outcome: "succeeded" | "failed" | "permanent" | "snoozed" | "lost";
  result: unknown;
  error: string | undefined;
}

// The most that the server hands out at once.
const CLAIM_JOBS_MAX = 100;

/**
 * Runs every job of these kinds that is due, also those that they enqueue meanwhile, one after the other, until none
 * is left, and returns what ran. Jobs that wait, for a retry or for their time, stay where they are.
 */
export async function runUntilDrained(
  jobs: readonly RunnableJob[],
  options: ClientOptions & { middleware?: readonly Middleware[]; leaseSeconds?: number } = {},
): Promise<Ran[]> {
  const client = options.url || options.token ? new Client(options) : defaultClient();
  const http = client.http.with({ "towpath-worker": `testing-${process.pid}` });
  const kinds = jobs.map(({ kind }) => kind);
  await http.post("/api/v1/executors/register", { kinds }).catch((error: unknown) => {
    if (!isMayNotRegister(error)) throw error;
  });
  const ran: Ran[] = [];
  for (;;) {
    const claim = { kinds, limit: CLAIM_JOBS_MAX, lease_seconds: options.leaseSeconds ?? 60 };
    const claimed = (await http.post("/api/v1/jobs/claim", claim)).jobs as ClaimedJob[];
    if (claimed.length === 0) return ran;
    for (const one of claimed) {
      const job = jobs.find(({ kind }) => kind === one.job_kind) as RunnableJob;
      const attempt = { lease: leaseOf(one), job, middleware: options.middleware ?? [], signal: new AbortController().signal, http };
      const outcome = await runOne(one, attempt);
      let lost = false;
      await record(http, [outcome], (_, isLost) => (lost = isLost));
      ran.push({
        id: one.job_id,
        kind: one.job_kind,
        args: one.payload_json,
        attempt: one.attempt,
        outcome: lost ? "lost" : wordOf(outcome),
        result: outcome.kind === "ack" ? outcome.result : undefined,
        error: outcome.kind === "fail" ? outcome.error : undefined,
      });
    }
  }
}

function wordOf(outcome: Outcome): Ran["outcome"] {
  if (outcome.kind === "fail") return outcome.permanent ? "permanent" : "failed";
  return ({ ack: "succeeded", snooze: "snoozed", lost: "lost" } as const)[outcome.kind];
}

/** A job that `expectEnqueued` found. */
export interface EnqueuedJob {
  id: string;
  kind: string;
  args: Record<string, unknown>;
  key: string;
  priority: number;
  runAt: Date;
}

/**
 * The unfinished jobs of a kind that this handle sees, oldest first, also those of its own open transaction; with
 * `args`, those that have at least these arguments. Throws if there is none. The login must be the owner's, or have
 * the role `towpath_observer`.
 */
export async function expectEnqueued(handle: Handle, job: { readonly kind: string } | string, args: Record<string, unknown> = {}): Promise<EnqueuedJob[]> {
  const kind = typeof job === "string" ? job : job.kind;
  const statement = `select coalesce(json_agg(json_build_object('id', job_id, 'kind', job_kind, 'args', payload_json, 'key', idempotency_key,
      'priority', priority, 'runAt', scheduled_at) order by job_id), '[]')::text as jobs
    from towpath.job_queue where job_kind = $1::text and state in ('queued', 'leased', 'in_progress', 'retry_waiting')`;
  const all = JSON.parse(String((await firstRow(handle, statement, [kind])).jobs)) as (EnqueuedJob & { runAt: string })[];
  const jobs = all.filter((job) => Object.entries(args).every(([name, value]) => isDeepStrictEqual(job.args[name], value)));
  if (jobs.length === 0) {
    const wanted = all.length > 0 ? ` with ${JSON.stringify(args)}; there are ${JSON.stringify(all.map((job) => job.args))}` : "";
    throw new AssertionError({ message: `no job of kind ${kind} is enqueued${wanted}`, stackStartFn: expectEnqueued });
  }
  return jobs.map((job) => ({ ...job, runAt: new Date(job.runAt) }));
}
