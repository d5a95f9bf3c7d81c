// The page of the shop once more, in React: `useJob`, and `useStream` for the raw messages.
import { useJob, useStream } from "@towpath/client/react";
import { createElement as h, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

interface Order {
  order: number;
  job: string;
  token: string;
  towpath: string;
  stream: string;
}

function Shop() {
  const [order, setOrder] = useState<Order>();
  const number = useHash();
  useEffect(() => {
    if (number) void fetch(`/orders/${number}`).then(async (answer) => setOrder((await answer.json()) as Order));
  }, [number]);
  return h("main", null, h("h1", null, "Shop"), h(NewOrder), order && h(Progress, { key: order.order, ...order }));
}

function NewOrder() {
  const [parcels, setParcels] = useState(20);
  const place = async () => {
    const answer = await fetch("/orders", { method: "POST", body: JSON.stringify({ parcels }) });
    location.hash = String(((await answer.json()) as { order: number }).order);
  };
  const input = h("input", { id: "parcels", type: "number", value: parcels, onChange: (event) => setParcels(Number(event.target.value)) });
  return h("p", null, input, " parcels ", h("button", { id: "place", onClick: () => void place() }, "Place order"));
}

function Progress({ order, job, token, towpath, stream }: Order) {
  const options = { token, url: towpath };
  const { state, percent, message, chunks, result, problem, stop } = useJob<{ parcels: number }>(job, options);
  const { items, closed } = useStream(stream, options);
  return h(
    "section",
    null,
    h("h2", null, `Order ${order}`),
    h("p", { id: "state" }, problem ? problem.message : (state ?? "…")),
    h("progress", { id: "percent", max: 100, value: percent ?? 0 }),
    h("p", { id: "message" }, message),
    h("p", { id: "chunks" }, `${chunks.length} parcels seen`),
    h("p", { id: "messages" }, `${items.length} messages${closed ? ", and no more" : ""}`),
    result && h("p", { id: "result" }, `shipped ${result.parcels} parcels`),
    h("button", { id: "stop", onClick: () => void stop("the customer changed their mind") }, "Stop"),
  );
}

function useHash(): string {
  const [hash, setHash] = useState(location.hash.slice(1));
  useEffect(() => {
    const changed = () => setHash(location.hash.slice(1));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

createRoot(document.getElementById("shop") as HTMLElement).render(h(Shop));
