// Errors by their word: the same words over HTTP and, as SQLSTATE TP001 and so on, from SQL.

/** What Towpath refused, or why it could not be asked. */
export class TowpathError extends Error {
  /** The code of the error, for programs: `gate_closed`, `invalid`, … */
  readonly word: string;
  /** The cause, for people. */
  readonly detail: string;
  /** What to do next, where there is one answer. */
  readonly hint: string | undefined;

  constructor(word: string, detail: string, options: { hint?: string | undefined; cause?: unknown } = {}) {
    super(options.hint ? `${detail} (${options.hint})` : detail, "cause" in options ? { cause: options.cause } : {});
    this.name = new.target.name;
    this.word = word;
    this.detail = detail;
    this.hint = options.hint;
  }
}

/** A gate is closed. Nothing was written; an operator opens it with `towpath gate open`. */
export class GateClosed extends TowpathError {}
/** A value is not allowed: fix the call. */
export class Invalid extends TowpathError {}
/** The token, or the database login, does not allow this. */
export class NotAuthorised extends TowpathError {}
/** There is no such job, or nothing else of that name. */
export class NotFound extends TowpathError {}
/** The present state does not allow this, for example a cancel of a job that has ended. */
export class Conflict extends TowpathError {}
/** Another worker has the job now, or it was cancelled: stop working on it. */
export class LeaseLost extends TowpathError {}
/** No enabled subscription covers this kind. */
export class NoSubscription extends TowpathError {}
/** The kind is paused. */
export class Paused extends TowpathError {}
/** The server or its database could not be reached: retry. */
export class Unavailable extends TowpathError {}

const byWord: Record<string, typeof TowpathError> = {
  gate_closed: GateClosed,
  invalid: Invalid,
  invalid_value: Invalid,
  unknown_key: Invalid,
  malformed: Invalid,
  too_large: Invalid,
  not_authorised: NotAuthorised,
  unauthenticated: NotAuthorised,
  not_found: NotFound,
  conflict: Conflict,
  lease_lost: LeaseLost,
  no_subscription: NoSubscription,
  paused: Paused,
  unavailable: Unavailable,
  busy: Unavailable,
  too_slow: Unavailable,
  internal: Unavailable,
};

const bySqlState: Record<string, string> = {
  TP001: "gate_closed",
  TP002: "invalid",
  TP003: "invalid_value",
  TP004: "unknown_key",
  TP005: "not_authorised",
  TP006: "not_found",
  TP007: "conflict",
  TP008: "lease_lost",
  TP009: "no_subscription",
  TP010: "paused",
};

/** The error of a word, of the class that belongs to it. */
export function errorOf(word: string, detail: string, options: { hint?: string | undefined; cause?: unknown } = {}): TowpathError {
  return new (byWord[word] ?? TowpathError)(word, detail, options);
}

/**
 * The error that a database driver threw, as ours if it is a refusal, with the driver's as `cause`; any other
 * error stays what it is. A value that PostgreSQL cannot read (class 22, such as a malformed uuid) is `invalid` too.
 */
export function errorOfDriver(thrown: unknown): unknown {
  for (const found of within(thrown)) {
    const state = [found.code, found.originalCode, found.sqlState].find((code) => typeof code === "string");
    if (typeof state !== "string") continue;
    const word = bySqlState[state] ?? (/^22[0-9A-Z]{3}$/.test(state) ? "invalid" : undefined);
    if (!word) continue;
    // Knex writes the statement before the message.
    const detail = String(found.originalMessage ?? found.message).replace(/^select [^]*? as ids? - /, "");
    const hint = typeof found.hint === "string" ? found.hint : undefined;
    return errorOf(word, detail, { hint, cause: thrown });
  }
  return thrown;
}

/** An error and what it wraps. Drizzle keeps the driver's error in `cause`, Prisma below `meta`. */
function* within(thrown: unknown, depth = 0): Generator<Record<string, unknown>> {
  if (typeof thrown !== "object" || thrown === null || depth > 5) return;
  const error = thrown as Record<string, unknown>;
  yield error;
  for (const inner of [error.cause, error.meta, error.driverAdapterError, error.originalError]) {
    yield* within(inner, depth + 1);
  }
}

/** Thrown by a handler: the job fails for good and becomes a dead letter at once. */
export class PermanentError extends Error {
  override readonly name: string = "PermanentError";
}

/** Thrown by a handler: the attempt failed, and the next one begins after this many seconds. */
export class RetryAfter extends Error {
  override readonly name: string = "RetryAfter";
  readonly seconds: number;

  constructor(seconds: number, message = `retry after ${seconds} s`, options: { cause?: unknown } = {}) {
    super(message, options);
    this.seconds = seconds;
  }
}

/** Thrown by a handler: run the job again after this many seconds, without counting this attempt. */
export class Snooze extends Error {
  override readonly name: string = "Snooze";
  readonly seconds: number;

  constructor(seconds: number, message = `snoozed for ${seconds} s`) {
    super(message);
    this.seconds = seconds;
  }
}
