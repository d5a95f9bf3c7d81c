// The page: places an order, shows how far it is, and stops it. The order is in the address, so that a reload and a
// second tab show the same one.
import { useJob, useStream } from "@towpath/client/react";
import { createElement as h, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

interface Order {
  order: number;
  job: string;
  token: string;
  announced: boolean;
}

function Shop() {
  const [order, setOrder] = useState<Order>();
  const number = useHash();
  useEffect(() => {
    if (number) void fetch(`/orders/${number}`).then(async (answer) => setOrder((await answer.json()) as Order));
  }, [number]);
  return h("main", null, h("h1", null, "Shop"), h(NewOrder), order && h(Progress, { key: order.order, ...order }), h(Feed));
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

function Progress({ order, job, token }: Order) {
  const { state, percent, message, chunks, result, problem, stop } = useJob<{ parcels: number }>(job, { token });
  return h(
    "section",
    null,
    h("h2", null, `Order ${order}`),
    h("p", { id: "state" }, problem ? problem.message : (state ?? "…")),
    h("progress", { id: "percent", max: 100, value: percent ?? 0 }),
    h("p", { id: "message" }, message),
    h("p", { id: "chunks" }, `${chunks.length} parcels seen`),
    result && h("p", { id: "result" }, `shipped ${result.parcels} parcels`),
    h("button", { id: "stop", onClick: () => void stop("the customer changed their mind") }, "Stop"),
  );
}

/** Every order of the shop, as events become entries of a stream. */
function Feed() {
  const { items } = useStream<{ data: { payload: { order: number } } }>("/v1/stream/shop");
  return h("ul", { id: "feed" }, items.map(({ data }, index) => h("li", { key: index }, `order ${data.payload.order} placed`)));
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
