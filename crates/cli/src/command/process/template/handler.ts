// {{kind}}: a process in TypeScript. Register its kind once: towpath process kind {{kind}}
// Then run this with TOWPATH_URL and TOWPATH_TOKEN set: `towpath up --dev` prints both.
import { work } from "@towpath/client";
import { process } from "@towpath/client/process";

// Runs from the top at every attempt; a step whose result is recorded does not run again.
const {{name}} = process("{{kind}}", async (input: unknown, steps) => {
  // Your work. Give other services the key: it is the same at every attempt.
  const begun = await steps.step("begin", async () => ({ key: steps.idempotencyKey }));
  // Goes on after a second, or when signalled: towpath process signal {{kind}} order:1 go
  const go = await steps.waitFor("go", { timeoutSeconds: 1 });
  return { input, begun, go };
});

await work([{{name}}]);
