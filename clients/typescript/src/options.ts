// The options of enqueue and emit, and their names in SQL and over HTTP.
import { Invalid } from "./errors.js";

/** How a job is enqueued. */
export interface EnqueueOptions {
  /** Unique among unfinished jobs: while one has this key, enqueueing returns that job and writes nothing. */
  key?: string;
  /** The earliest start; now unless told. */
  runAt?: Date | string;
  /** Higher runs first; 100 unless told. */
  priority?: number;
  /** How many attempts before the job becomes a dead letter. */
  maxAttempts?: number;
  /** The class of executor that runs it; the one that is subscribed to the kind unless told. */
  executor?: string;
  domain?: string;
  sourceRef?: string;
  targetRef?: string;
  /** A reference into the payload store, for data that does not belong into arguments. */
  payloadRef?: string;
  /** Who caused it, for the audit; in SQL only: over HTTP it is the token. */
  actor?: string;
  /** Groups jobs of one run: a uuid. */
  runId?: string;
}

/** How an event is emitted. */
export interface EmitOptions {
  stream?: string;
  subjectTable?: string;
  subjectRef?: string;
  /** Events with the same key are delivered in order. */
  orderingKey?: string;
  /** In SQL only: over HTTP it is the token. */
  actor?: string;
  /** Makes a repeated emit harmless: a uuid. */
  eventId?: string;
}

const enqueueNames: Record<keyof EnqueueOptions, string> = {
  key: "key",
  runAt: "run_at",
  priority: "priority",
  maxAttempts: "max_attempts",
  executor: "executor",
  domain: "domain",
  sourceRef: "source_ref",
  targetRef: "target_ref",
  payloadRef: "payload_ref",
  actor: "actor",
  runId: "run_id",
};

const emitNames: Record<keyof EmitOptions, string> = {
  stream: "stream",
  subjectTable: "subject_table",
  subjectRef: "subject_ref",
  orderingKey: "ordering_key",
  actor: "actor",
  eventId: "event_id",
};

export type Named = Record<string, string | number>;

/** The options that are given, by their names in SQL. */
export const enqueueOptions = (options: EnqueueOptions): Named => named(options, enqueueNames, "enqueue");
export const emitOptions = (options: EmitOptions): Named => named(options, emitNames, "emit");

function named(options: object, names: Record<string, string>, what: string): Named {
  const found: Named = {};
  for (const [option, value] of Object.entries(options) as [string, unknown][]) {
    const name = names[option];
    if (name === undefined) {
      throw new Invalid("unknown_key", `${what}: there is no option ${option}; there are ${Object.keys(names).join(", ")}`);
    }
    if (value === undefined || value === null) continue;
    found[name] = option === "runAt" ? moment(value) : (value as string | number);
  }
  return found;
}

/** What goes over HTTP. There the actor is the holder of the token, and no other can be chosen. */
export function refuseActor(options: Named): Named {
  if (options.actor === undefined) return options;
  throw new Invalid("invalid", "actor: over HTTP it is the holder of the token", { hint: "leave actor out, or pass a database handle" });
}

function moment(value: unknown): string {
  const date = value instanceof Date ? value : new Date(String(value));
  if (Number.isNaN(date.getTime())) {
    throw new Invalid("invalid", `enqueue: runAt is no point in time: ${String(value)}`, { hint: "pass a Date, or a text as 2027-01-01T07:00:00Z" });
  }
  return date.toISOString();
}

/** A call of an SQL function with named parameters, each of which goes as text, and their values. */
export function sqlCall(name: string, types: Record<string, string>, values: Named): { call: string; values: (string | null)[] } {
  const parameters = Object.entries(types).map(([parameter, type], index) => {
    return `${parameter} => $${index + 1}::text${type === "text" ? "" : `::${type}`}`;
  });
  return {
    call: `towpath.${name}(${parameters.join(", ")})`,
    values: Object.keys(types).map((parameter) => (values[parameter] === undefined ? null : String(values[parameter]))),
  };
}
