// The rows as a table, each beside Towpath's of the same size.
import { readFileSync } from "node:fs"

const rows = readFileSync(process.argv[2], "utf8").trim().split("\n").map((line) => JSON.parse(line))
console.log("subscribers  peer           p50 ms    p99 ms    CPU ms/publish  p50 against Towpath  read p50 ms  CPU ms/read")
for (const row of rows) {
  const own = rows.find((one) => one.peer === "towpath" && one.subscribers === row.subscribers)
  const ratio = own ? `${(row.p50_ms / own.p50_ms).toFixed(1)} x` : "-"
  const cells = [String(row.subscribers).padStart(11), row.peer.padEnd(13), String(row.p50_ms).padStart(8), String(row.p99_ms).padStart(8), String(row.cpu_ms).padStart(15), ratio.padStart(20), String(row.read_p50_ms).padStart(11), String(row.read_cpu_ms).padStart(11)]
  console.log(cells.join("  "))
}
