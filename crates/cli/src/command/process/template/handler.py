"""{{kind}}: a process in Python. Register its kind once: towpath process kind {{kind}}
Then run this with TOWPATH_URL and TOWPATH_TOKEN set: `towpath up --dev` prints both.
"""

import asyncio
from typing import Any

from towpath import Worker
from towpath.process import Steps, process


# Runs from the top at every attempt; a step whose result is recorded does not run again.
@process("{{kind}}")
async def {{name}}(input: Any, steps: Steps) -> Any:
    async def begin() -> Any:
        # Your work. Give other services the key: it is the same at every attempt.
        return {"key": steps.idempotency_key}

    begun = await steps.step("begin", begin)
    # Goes on after a second, or when signalled: towpath process signal {{kind}} order:1 go
    go = await steps.wait_for("go", timeout=1)
    return {"input": input, "begun": begun, "go": go}


if __name__ == "__main__":
    asyncio.run(Worker([{{name}}]).run())
