#!/usr/bin/env node
// Runs the program that the optional dependency for this platform carries, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;

function program() {
  try {
    return require.resolve(`@towpath/${platform}/bin/towpath`);
  } catch {
    console.error(
      `towpath: the package @towpath/${platform} is not installed. There are packages for linux-x64 and linux-arm64` +
        " with glibc; they are optional dependencies, so install without --omit=optional. On other systems, use the" +
        " container image, or build towpath from its source.",
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`towpath: cannot run the program: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  // End by the same signal, so that a shell sees what happened.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

// The program decides when it ends; this process only passes signals on. On a terminal, Ctrl-C reaches both processes
// at once, and a second one would make the program exit without draining.
for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"]) {
  process.on(signal, () => {
    if (!(signal === "SIGINT" && process.stdin.isTTY)) child.kill(signal);
  });
}

// npx ends without passing SIGTERM on. When it is gone, nothing else can stop the program.
if (process.env.npm_command === "exec") {
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) child.kill("SIGTERM");
  }, 500).unref();
}
