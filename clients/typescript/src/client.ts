// The client: where the server is, and what it can be asked for.
import { Backoff, sleep } from "./backoff.js";
import { Invalid, Unavailable } from "./errors.js";
import { enqueueManyOver, enqueueOver, newJobs } from "./enqueue.js";
import type { Entry, JobLike } from "./enqueue.js";
import { emitOptions, refuseActor } from "./options.js";
import type { EmitOptions, EnqueueOptions } from "./options.js";
import { follow } from "./follow.js";
import type { JobMessage } from "./follow.js";
import { Http } from "./http.js";
import { statusOf } from "./status.js";
import type { JobState, JobStatus, JobToken } from "./status.js";

export interface ClientOptions {
  /** The server; `TOWPATH_URL` unless told. */
  url?: string;
  /** A token of an executor, a producer or a job; `TOWPATH_TOKEN` unless told. */
  token?: string;
}

// The longest that the server waits in one call.
const WAIT_SECONDS_MAX = 60;

export class Client {
  readonly url: string;
  /** @internal */
  readonly http: Http;

  constructor(options: ClientOptions = {}) {
    const environment = globalThis.process?.env ?? {};
    const url = options.url ?? environment.TOWPATH_URL;
    const token = options.token ?? environment.TOWPATH_TOKEN;
    if (!url || !token) {
      const missing = url ? "token" : "url";
      throw new Invalid("invalid", `the client has no ${missing}`, {
        hint: `pass ${missing} or set TOWPATH_${missing.toUpperCase()}; towpath up --dev prints both`,
      });
    }
    this.http = new Http(url, token);
    this.url = this.http.url;
  }

  /** Enqueues a job and returns its id. For a kind that is defined elsewhere, pass its name. */
  async enqueue<Args>(job: JobLike<Args>, args: Args, options?: EnqueueOptions): Promise<string> {
    const [row] = await newJobs(job, [[args, options]]);
    return enqueueOver(this.http, row as NonNullable<typeof row>);
  }

  /** Enqueues many jobs and returns their ids in order. A refusal throws, but others may have been enqueued. */
  async enqueueMany<Args>(job: JobLike<Args>, entries: readonly Entry<Args>[]): Promise<string[]> {
    return enqueueManyOver(this.http, await newJobs(job, entries));
  }

  /** Emits an event and returns its id. */
  async emit(domain: string, type: string, payload: object = {}, options: EmitOptions = {}): Promise<string> {
    const named = refuseActor(emitOptions(options));
    const event = { domain, type, payload: payload as Record<string, unknown>, ...named };
    return ((await this.http.post("/api/v1/events", event)) as { event_id: string }).event_id;
  }

  /** A job as it is now; throws `NotFound`. */
  async job<Result = unknown>(id: string, options: { signal?: AbortSignal } = {}): Promise<JobStatus<Result>> {
    return statusOf<Result>(await this.http.get("/api/v1/jobs/{job_id}", { path: { job_id: id }, signal: options.signal }));
  }

  /**
   * Waits until the job has ended, or the time is over, and returns it as it is then: `ended` says which. A server
   * that is away is asked again until then.
   */
  async wait<Result = unknown>(id: string, options: { timeoutSeconds?: number; signal?: AbortSignal } = {}): Promise<JobStatus<Result>> {
    const deadline = Date.now() + (options.timeoutSeconds ?? Infinity) * 1000;
    const backoff = new Backoff();
    for (;;) {
      const left = Math.ceil((deadline - Date.now()) / 1000);
      const wait = Math.min(Math.max(left, 0), WAIT_SECONDS_MAX);
      const call = { path: { job_id: id }, query: { wait: wait || undefined }, signal: options.signal, timeoutSeconds: wait + 30 };
      try {
        const job = statusOf<Result>(await this.http.get("/api/v1/jobs/{job_id}", call));
        if (job.ended || Date.now() >= deadline) return job;
        backoff.reset();
      } catch (error) {
        if (!(error instanceof Unavailable) || Date.now() >= deadline) throw error;
        await sleep(Math.min(backoff.pause(), deadline - Date.now()), options.signal);
        options.signal?.throwIfAborted();
      }
    }
  }

  /** What the handler of a job returned, also if it is larger than 64 KiB; throws `NotFound` if the job has no result. */
  async result<Result = unknown>(id: string, options: { signal?: AbortSignal } = {}): Promise<Result> {
    return (await this.http.get("/api/v1/jobs/{job_id}/result", { path: { job_id: id }, signal: options.signal })) as Result;
  }

  /** Cancels a job that has not ended: it will not run again, and a handler that runs it gets an aborted signal. */
  async cancel(id: string, reason?: string): Promise<JobState> {
    const body = reason === undefined ? {} : { reason };
    const answer = await this.http.post("/api/v1/jobs/{job_id}/cancel", body, { path: { job_id: id } });
    return answer.state as JobState;
  }

  /** A token for a browser that follows this one job. */
  async jobToken(id: string, options: { seconds?: number } = {}): Promise<JobToken> {
    const answer = await this.http.post("/api/v1/jobs/{job_id}/token", { ...options }, { path: { job_id: id } });
    return { token: answer.token, expiresAt: new Date(answer.expires_at), stream: answer.stream };
  }

  /**
   * The messages of a job's stream, from `offset` on, until the job has ended. Needs the package
   * `@durable-streams/client`.
   */
  follow(id: string, options: { offset?: string; signal?: AbortSignal } = {}): AsyncIterable<JobMessage> {
    return follow(this, id, options);
  }
}

let shared: Client | undefined;

/** The client of calls without a handle: `TOWPATH_URL` and `TOWPATH_TOKEN`. */
export function defaultClient(): Client {
  return (shared ??= new Client());
}
