// Standard Schema (standardschema.dev): the interface that zod, valibot, arktype and others share. The
// specification asks libraries to copy its types rather than to depend on them.
import { Invalid } from "./errors.js";

/** A schema of any library that follows Standard Schema, version 1. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: ReadonlyArray<Issue> };

/** One reason why a value does not match. */
export interface Issue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
}

export type InputOf<Schema extends StandardSchema> = NonNullable<Schema["~standard"]["types"]>["input"];
export type OutputOf<Schema extends StandardSchema> = NonNullable<Schema["~standard"]["types"]>["output"];

/** The value as the schema returns it; `Invalid`, with what is wrong, if it does not match. */
export async function validate<Output>(schema: StandardSchema<any, Output>, value: unknown, what: string): Promise<Output> {
  const validated = await schema["~standard"].validate(value);
  if (validated.issues === undefined) return validated.value;
  const issues = validated.issues.map(({ message, path }) => {
    const keys = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
    return keys.length > 0 ? `${keys.join(".")}: ${message}` : message;
  });
  throw new Invalid("invalid", `${what} do not match their schema: ${issues.join("; ")}`);
}
