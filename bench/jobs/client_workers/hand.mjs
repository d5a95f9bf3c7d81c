// Claims 100 jobs and acks them in one call, by hand, JOBS times in all: hand.mjs KIND JOBS
const [kind, wanted] = [process.argv[2], Number(process.argv[3])];
const headers = { authorization: `Bearer ${process.env.TOWPATH_TOKEN}`, "content-type": "application/json", "towpath-worker": "by-hand" };

async function call(path, body) {
  const response = await fetch(`${process.env.TOWPATH_URL}/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

await call("executors/register", { kinds: [kind] });
for (let done = 0; done < wanted; ) {
  const { jobs } = await call("jobs/claim", { kinds: [kind], limit: 100, wait_seconds: 5, lease_seconds: 60 });
  const leases = jobs.map(({ job_id, attempt, entry_id }) => ({ job_id, attempt, entry_id }));
  if (leases.length > 0) done += (await call("jobs/ack_many", { jobs: leases })).acked;
}
