// State, end and cancellation of jobs, over HTTP.
import type { Answer, Http } from "./http.js";

/** Where a job stands. */
export type JobPhase = "queued" | "leased" | "in_progress" | "retry_waiting" | "succeeded" | "dead_letter" | "cancelled" | "cleaned";

export interface JobState<Result = unknown> {
  id: string;
  kind: string;
  state: JobPhase;
  attempt: number;
  maxAttempts: number;
  /** How far it is, as its handler reported it. */
  percent: number | undefined;
  message: string | undefined;
  /** What its handler returned. */
  result: Result | undefined;
  /** Why its last attempt failed. */
  error: string | undefined;
  scheduledAt: Date | undefined;
  createdAt: Date;
  finishedAt: Date | undefined;
  /** The address of its stream, once it has one. */
  stream: string | undefined;
}

/** A token for a browser: it reads one job and its stream, and cancels it. */
export interface JobToken {
  token: string;
  expiresAt: Date;
  /** The address of the job's stream. */
  stream: string;
}

// The longest that the server waits in one call.
const WAIT_SECONDS_MAX = 60;

const ended: readonly JobPhase[] = ["succeeded", "dead_letter", "cancelled", "cleaned"];

/** Whether a job in this state will not change any more. */
export const hasEnded = (state: JobPhase): boolean => ended.includes(state);

export class Jobs {
  readonly #http: Http;

  /** @internal: use `tp.jobs`. */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Where a job stands now; throws `NotFound`. */
  async get<Result = unknown>(id: string, options: { signal?: AbortSignal } = {}): Promise<JobState<Result>> {
    return stateOf(await this.#http.get("/api/v1/jobs/{job_id}", { path: { job_id: id }, signal: options.signal }), this.#http.url) as JobState<Result>;
  }

  /** Waits until the job has ended, or the time is over, and returns where it stands then. */
  async wait<Result = unknown>(id: string, options: { timeoutSeconds?: number; signal?: AbortSignal } = {}): Promise<JobState<Result>> {
    const deadline = Date.now() + (options.timeoutSeconds ?? Infinity) * 1000;
    for (;;) {
      const left = Math.ceil((deadline - Date.now()) / 1000);
      const wait = Math.min(Math.max(left, 0), WAIT_SECONDS_MAX);
      const call = { path: { job_id: id }, query: { wait: wait || undefined }, signal: options.signal, timeoutSeconds: wait + 30 };
      const job = stateOf(await this.#http.get("/api/v1/jobs/{job_id}", call), this.#http.url);
      if (hasEnded(job.state) || Date.now() >= deadline) return job as JobState<Result>;
    }
  }

  /** Cancels a job that has not ended: it will not run again, and a handler that runs it gets an aborted signal. */
  async cancel(id: string, reason?: string): Promise<JobPhase> {
    const body = reason === undefined ? {} : { reason };
    const answer = await this.#http.post("/api/v1/jobs/{job_id}/cancel", body, { path: { job_id: id } });
    return answer.state as JobPhase;
  }

  /** A token for one job, to hand to a browser. */
  async token(id: string, options: { seconds?: number } = {}): Promise<JobToken> {
    const answer = await this.#http.post("/api/v1/jobs/{job_id}/token", { ...options }, { path: { job_id: id } });
    return { token: answer.token, expiresAt: new Date(answer.expires_at), stream: new URL(answer.stream, this.#http.url).href };
  }
}

function stateOf(answer: Answer<"get", "/api/v1/jobs/{job_id}">, url: string): JobState {
  const date = (text: string | null | undefined) => (text ? new Date(text) : undefined);
  return {
    id: answer.job_id,
    kind: answer.kind,
    state: answer.state,
    attempt: answer.attempt,
    maxAttempts: answer.max_attempts,
    percent: answer.percent ?? undefined,
    message: answer.message ?? undefined,
    result: answer.result ?? undefined,
    error: answer.error ?? undefined,
    scheduledAt: date(answer.scheduled_at),
    createdAt: new Date(answer.created_at),
    finishedAt: date(answer.finished_at),
    stream: answer.stream ? new URL(answer.stream, url).href : undefined,
  };
}
