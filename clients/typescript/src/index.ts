// @towpath/client: jobs, events and live streams on PostgreSQL.
export { Towpath } from "./towpath.js";
export type { TowpathOptions } from "./towpath.js";
export type { Entry, Handler, JobDefinition, RunnableJob } from "./job.js";
export type { EmitOptions, EnqueueOptions } from "./options.js";
export type { DrizzleHandle, Handle, KnexHandle, KyselyHandle, PgHandle, PostgresJsHandle, PrismaHandle } from "./handle.js";
export type { StandardSchema } from "./schema.js";
export type { WorkOptions } from "./worker.js";
export type { JobContext, Middleware } from "./run.js";
export { hasEnded } from "./jobs.js";
export type { JobPhase, JobState, JobToken, Jobs } from "./jobs.js";
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
