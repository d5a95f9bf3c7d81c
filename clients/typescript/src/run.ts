// One attempt of one job: its context, its handler, and what came of it.
import { LeaseLost, PermanentError, RetryAfter, Snooze } from "./errors.js";
import type { Http } from "./http.js";
import type { RunnableJob } from "./job.js";
import type { components } from "./openapi.js";

export type ClaimedJob = components["schemas"]["ClaimedJob"] & { entry_id?: number | null };

/** What a handler knows of its job, and can do with it. */
export class Context<Args = unknown> {
  readonly id: string;
  readonly kind: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly args: Args;
  /** Aborted when the lease is lost: the job was cancelled, or another worker has it; or the worker stops. */
  readonly signal: AbortSignal;
  /** The idempotency key. */
  readonly key: string;
  readonly sourceRef: string | undefined;
  readonly targetRef: string | undefined;
  readonly payloadRef: string | undefined;
  /** The span that enqueued the job, in the format of W3C Trace Context. */
  readonly traceparent: string | undefined;
  readonly #http: Http;

  /** @internal */
  constructor(job: ClaimedJob, args: Args, signal: AbortSignal, http: Http) {
    this.id = job.job_id;
    this.kind = job.job_kind;
    this.attempt = job.attempt;
    this.maxAttempts = job.max_attempts;
    this.args = args;
    this.signal = signal;
    this.key = job.idempotency_key;
    this.sourceRef = job.source_ref ?? undefined;
    this.targetRef = job.target_ref ?? undefined;
    this.payloadRef = job.payload_ref ?? undefined;
    this.traceparent = job.traceparent ?? undefined;
    this.#http = http;
  }

  /** @internal For calls about what the job is an attempt of. */
  get http(): Http {
    return this.#http;
  }

  /** Reports how far the job is; readers that follow it see it at once. Throws `LeaseLost` if it is no longer yours. */
  async progress(percent: number, message?: string): Promise<void> {
    const note = message === undefined ? {} : { message };
    const lease = { job_id: this.id, attempt: this.attempt };
    await this.#http.post("/api/v1/jobs/progress", { ...lease, percent: Math.round(percent), ...note }, { signal: this.signal });
  }

  /** Appends a JSON value to the job's own stream. Throws `LeaseLost` if the job is no longer yours. */
  async append(data: unknown): Promise<void> {
    const body = { attempt: this.attempt, data };
    await this.#http.post("/api/v1/jobs/{job_id}/append", body, { path: { job_id: this.id }, signal: this.signal });
  }

  /** Ends this attempt: the job runs again after this many seconds, and the attempt does not count. */
  snooze(seconds: number, message?: string): never {
    throw new Snooze(seconds, message);
  }
}

/** Called around every handler; `next` runs the rest and returns the result. */
export type Middleware = (ctx: Context, next: () => Promise<unknown>) => unknown;

/** Why a signal is aborted at the end of a drain. What a handler throws then is no failure: the job runs elsewhere. */
export class WorkerStops extends Error {
  override readonly name = "WorkerStops";

  constructor() {
    super("the worker stops");
  }
}

export interface Lease {
  job_id: string;
  attempt: number;
  entry_id?: number;
}

/** What came of an attempt. A lost one is recorded by the worker that has the job now. */
export type Outcome =
  | { lease: Lease; kind: "ack"; result: unknown }
  | { lease: Lease; kind: "fail"; error: string; permanent: boolean; retryDelaySeconds?: number }
  | { lease: Lease; kind: "snooze"; seconds: number; note: string }
  | { lease: Lease; kind: "lost"; error: string };

export const leaseOf = ({ job_id, attempt, entry_id }: ClaimedJob): Lease =>
  entry_id === undefined || entry_id === null ? { job_id, attempt } : { job_id, attempt, entry_id };

// The same in every language: below what one request may have. The server keeps a result of more than 64 KiB as a
// payload.
const RESULT_BYTES_MAX = 2 << 20;
// Longer texts do not help, and a stack of them must fit into one call.
const ERROR_CHARACTERS_MAX = 8_000;

export interface Attempt {
  lease: Lease;
  job: RunnableJob;
  middleware: readonly Middleware[];
  signal: AbortSignal;
  http: Http;
}

/** Runs one attempt to its end. Never throws. */
export async function runOne(claimed: ClaimedJob, { lease, job, middleware, signal, http }: Attempt): Promise<Outcome> {
  try {
    let args: unknown;
    try {
      args = await job.parse(claimed.payload_json);
    } catch (error) {
      throw new PermanentError(error instanceof Error ? error.message : String(error));
    }
    const context = new Context(claimed, args, signal, http);
    const handler = job.handler as (args: unknown, ctx: Context) => unknown;
    const chain = middleware.reduceRight<() => Promise<unknown>>(
      (next, layer) => async () => layer(context, next),
      async () => handler(args, context),
    );
    return { lease, kind: "ack", result: checked(await chain()) };
  } catch (error) {
    if (signal.reason instanceof LeaseLost) return { lease, kind: "lost", error: signal.reason.message };
    if (signal.reason instanceof WorkerStops) return { lease, kind: "snooze", seconds: 0, note: signal.reason.message };
    return outcomeOf(lease, error);
  }
}

function outcomeOf(lease: Lease, error: unknown): Outcome {
  if (error instanceof LeaseLost) return { lease, kind: "lost", error: error.message };
  if (error instanceof Snooze) return { lease, kind: "snooze", seconds: error.seconds, note: error.message };
  const failed = { lease, kind: "fail" as const, error: textOf(error), permanent: error instanceof PermanentError };
  return error instanceof RetryAfter ? { ...failed, retryDelaySeconds: error.seconds } : failed;
}

/** The result as JSON will have it; nothing for undefined. */
function checked(result: unknown): unknown {
  if (result === undefined) return undefined;
  let json: string | undefined;
  try {
    json = JSON.stringify(result);
  } catch (error) {
    throw new PermanentError(`the result is not JSON: ${textOf(error)}; return plain values`, { cause: error });
  }
  if (json !== undefined && new TextEncoder().encode(json).length > RESULT_BYTES_MAX) {
    throw new PermanentError("the result is larger than 2 MiB; store it elsewhere and return a reference");
  }
  // An escape for it, not a backslash and the letters of one.
  if (json !== undefined && /(?<!\\)(\\\\)*\\u0000/.test(json)) {
    throw new PermanentError("the result contains a zero character, which PostgreSQL cannot store; remove it");
  }
  return json === undefined ? undefined : result;
}

/** An error for people: its name and message, and those of its causes. */
function textOf(thrown: unknown): string {
  const texts: string[] = [];
  for (let error = thrown; error !== undefined && texts.length < 5; error = (error as { cause?: unknown } | null)?.cause) {
    texts.push(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  }
  // PostgreSQL's text has no zero byte.
  return texts.join("; caused by ").replaceAll("\0", "").slice(0, ERROR_CHARACTERS_MAX) || "no message";
}
