// @towpath/client: jobs, events and live streams on PostgreSQL.
export { Client } from "./client.js";
export type { ClientOptions } from "./client.js";
export { Job, emit, job } from "./job.js";
export type { Handler, RunnableJob } from "./job.js";
export type { Entry, JobLike } from "./enqueue.js";
export type { EmitOptions, EnqueueOptions } from "./options.js";
export type { DrizzleHandle, Handle, KnexHandle, KyselyHandle, PgHandle, PostgresJsHandle, PrismaHandle } from "./handle.js";
export type { StandardSchema } from "./schema.js";
export { work } from "./worker.js";
export type { WorkOptions } from "./worker.js";
export type { Context, Middleware } from "./run.js";
export type { JobMessage } from "./follow.js";
export type { JobState, JobStatus, JobToken } from "./status.js";
export {
  Conflict,
  GateClosed,
  Invalid,
  LeaseLost,
  NoSubscription,
  NotAuthorised,
  NotFound,
  Paused,
  PermanentError,
  RetryAfter,
  Snooze,
  TowpathError,
  Unavailable,
} from "./errors.js";
