// Where a job stands, as the HTTP API tells it.
import type { Answer } from "./http.js";

/** The words for where a job stands. */
export type JobState = "queued" | "leased" | "in_progress" | "retry_waiting" | "succeeded" | "dead_letter" | "cancelled" | "cleaned";

/** A job as it is now. */
export interface JobStatus<Result = unknown> {
  id: string;
  kind: string;
  state: JobState;
  /** It succeeded, became a dead letter or was cancelled. */
  ended: boolean;
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
  /** The path of its stream on the server, once it has one. */
  stream: string | undefined;
}

/** A token for a browser: it reads one job and its stream, and cancels it. */
export interface JobToken {
  token: string;
  expiresAt: Date;
  /** The path of the job's stream on the server. */
  stream: string;
}

const ends: readonly JobState[] = ["succeeded", "dead_letter", "cancelled", "cleaned"];

/** Whether a job in this state will not change any more. */
export const hasEnded = (state: JobState): boolean => ends.includes(state);

export function statusOf<Result>(answer: Answer<"get", "/api/v1/jobs/{job_id}">): JobStatus<Result> {
  const date = (text: string | null | undefined) => (text ? new Date(text) : undefined);
  return {
    id: answer.job_id,
    kind: answer.kind,
    state: answer.state,
    ended: hasEnded(answer.state),
    attempt: answer.attempt,
    maxAttempts: answer.max_attempts,
    percent: answer.percent ?? undefined,
    message: answer.message ?? undefined,
    result: (answer.result ?? undefined) as Result | undefined,
    error: answer.error ?? undefined,
    scheduledAt: date(answer.scheduled_at),
    createdAt: new Date(answer.created_at),
    finishedAt: date(answer.finished_at),
    stream: answer.stream ?? undefined,
  };
}
