// Definitions, schemas, errors and the types of the API, without a server.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { promisify } from "node:util";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { Client, GateClosed, Invalid, LeaseLost, NotAuthorised, NotFound, TowpathError, Unavailable, emit, job as define } from "../src/index.js";
import type { StandardSchema } from "../src/index.js";

/** A handle that keeps what it is asked. */
function keeping(): { asked: unknown[][]; query(text: string, values: unknown[]): Promise<{ rows: object[] }> } {
  const asked: unknown[][] = [];
  return {
    asked,
    query: async (text, values) => {
      asked.push([text, ...values]);
      return { rows: [{ id: "an id" }] };
    },
  };
}

test("the types of the API are those of its OpenAPI document", async () => {
  const root = new URL("../../", import.meta.url);
  const generated = await promisify(execFile)(
    "npx",
    ["openapi-typescript", "../../crates/server/src/openapi.json", "--empty-objects-unknown"],
    { cwd: root, maxBuffer: 1 << 25 },
  );
  const committed = await readFile(new URL("src/openapi.ts", root), "utf8");
  assert.ok(generated.stdout.trim() === committed.trim(), "src/openapi.ts is not what crates/server/src/openapi.json says; run: npm run generate");
});

const schemas: Record<string, StandardSchema<any, any>> = {
  zod: z.object({ file: z.string(), pages: z.number().optional() }),
  valibot: v.object({ file: v.string(), pages: v.optional(v.number()) }),
  arktype: type({ file: "string", "pages?": "number" }),
};

for (const [library, schema] of Object.entries(schemas)) {
  test(`${library}: arguments are validated when they are enqueued`, async () => {
    const job = define("resize", schema);
    const handle = keeping();
    assert.equal(await job.enqueue(handle, { file: "a.png" }), "an id");
    assert.equal(handle.asked[0]?.[2], '{"file":"a.png"}');
    await assert.rejects(job.enqueue(handle, { file: 7 }), (error) => error instanceof Invalid && /file/.test(error.message));
    assert.equal(handle.asked.length, 1, "nothing was sent");
  });
}

test("what is validated is what a worker will read", async () => {
  const handle = keeping();
  const wrong = define("wrong", z.object({ at: z.date() }));
  await assert.rejects(wrong.enqueue(handle, { at: new Date() }), /at: .*expected date/);
  const right = define("right", z.object({ at: z.coerce.date() }));
  await right.enqueue(handle, { at: new Date(0) });
  assert.equal(handle.asked[0]?.[2], '{"at":"1970-01-01T00:00:00.000Z"}');
});

test("the types of arguments follow the schema", async () => {
  const job = define("typed", z.object({ file: z.string() }));
  const others = [define("typed", v.object({ file: v.string() })), define("typed", type({ file: "string" }))] as const;
  // @ts-expect-error: a number is no file
  await assert.rejects(job.enqueue(keeping(), { file: 7 }), Invalid);
  // @ts-expect-error: a number is no file
  await assert.rejects(others[0].enqueue(keeping(), { file: 7 }), Invalid);
  // @ts-expect-error: a number is no file
  await assert.rejects(others[1].enqueue(keeping(), { file: 7 }), Invalid);
  // @ts-expect-error: no such option
  await assert.rejects(job.enqueue(keeping(), { file: "a" }, { prority: 7 }), /there is no option prority/);
  job.run(async (args, { attempt }) => args.file.length + attempt);
  others[0].run((args) => args.file.length);
  others[1].run((args) => args.file.length);
});

test("defaults of a definition are overridden by the options of a call", async () => {
  const handle = keeping();
  const job = define("mail", z.object({}), { priority: 7, maxAttempts: 2 });
  await job.enqueue(handle, {}, { priority: 9 });
  assert.deepEqual([handle.asked[0]?.[3], handle.asked[0]?.[7]], ["9", "2"]);
});

test("a missing handle does not turn a transaction into a call over HTTP", async () => {
  const job = define("mail", z.object({}));
  const missing = undefined as unknown as ReturnType<typeof keeping>;
  await assert.rejects(job.enqueue(missing, {}), /the database handle is undefined/);
  await assert.rejects(emit(missing, "a", "b"), /the database handle is undefined/);
});

test("a client without an address or a token says what is missing", () => {
  assert.throws(() => new Client({ url: "http://127.0.0.1:9", token: "" }), /the client has no token .*TOWPATH_TOKEN/);
  assert.throws(() => new Client({ url: "", token: "none" }), /the client has no url .*TOWPATH_URL/);
});

test("errors are told by their word, over HTTP as in SQL", async () => {
  const answers: [number, string, unknown, typeof TowpathError][] = [
    [503, '{"error":"gate_closed","detail":"the gate is closed"}', "gate_closed", GateClosed],
    [422, '{"error":"invalid","detail":"no","hint":"do"}', "invalid", Invalid],
    [401, '{"error":"unauthenticated","detail":"no"}', "unauthenticated", NotAuthorised],
    [404, '{"error":"not_found","detail":"no"}', "not_found", NotFound],
    [409, '{"error":"lease_lost","detail":"no"}', "lease_lost", LeaseLost],
    [503, '{"error":"busy","detail":"no"}', "busy", Unavailable],
    [502, "<html>bad gateway</html>", "unavailable", Unavailable],
    [200, "<html>a login page</html>", "malformed", TowpathError],
  ];
  const server = createServer((_, response) => {
    const [status, body] = answers[0] as (typeof answers)[0];
    response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const away = new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: "none" });
  const job = define("mail", z.object({}));
  for (; answers.length > 0; answers.shift()) {
    const [, , word, kind] = answers[0] as (typeof answers)[0];
    await assert.rejects(job.enqueue(away, {}), (error) => error instanceof kind && error.word === word);
  }
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(job.enqueue(away, {}), (error) => error instanceof Unavailable && /does not answer: .+TOWPATH_URL/.test(error.message));
});
