// Works on JOBS jobs with the package, and ends: worker.mjs KIND JOBS
import { pathToFileURL } from "node:url";

const { job, work } = await import(pathToFileURL(`${process.env.CLIENT_PACKAGE}/dist/index.js`).href);
const [kind, wanted] = [process.argv[2], Number(process.argv[3])];
// A schema that lets everything pass.
const any = { "~standard": { version: 1, vendor: "none", validate: (value) => ({ value }) } };
const stop = new AbortController();
let ran = 0;
const count = job(kind, any).run(() => {
  if (++ran === wanted) stop.abort();
});
await work([count], { concurrency: 100, signal: stop.signal });
