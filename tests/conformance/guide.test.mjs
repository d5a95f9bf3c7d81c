// The program in the guide of streams does what it says.
import { readFileSync, writeFileSync } from "node:fs"
import { expect, test, vi } from "vitest"

test("the guide's program follows what it appends", async () => {
  const guide = readFileSync(process.env.STREAMS_GUIDE, "utf8")
  const [, program] = guide.match(/```js\n([\s\S]*?)```/)
  writeFileSync("guide-program.mjs", program.replace("http://127.0.0.1:4437", process.env.STREAMS_URL))
  const said = vi.spyOn(console, "log").mockImplementation(() => {})
  await import("./guide-program.mjs")
  await vi.waitFor(() => expect(said).toHaveBeenCalledWith("it works"), { timeout: 20_000 })
  said.mockRestore()
  // The end of the stream ends its readers.
  const closed = await fetch(`${process.env.STREAMS_URL}/v1/stream/news`, {
    method: "POST",
    headers: { "stream-closed": "true" },
  })
  expect(closed.status).toBeLessThan(300)
})
