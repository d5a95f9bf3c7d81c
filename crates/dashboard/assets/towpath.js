// Live updates, keyboard shortcuts, theme and copying. Everything but live updates works without it.
"use strict";
const root = document.documentElement;
const store = { get: key => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private mode */ } } };

// Theme: the user's choice, or the system's.
const chosen = store.get("towpath-theme");
if (chosen) root.dataset.theme = chosen;
function toggleTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store.set("towpath-theme", root.dataset.theme);
}

// Live: a line on the stream names the topics that changed, and the page reloads its content.
const topics = (document.body.dataset.topics || "").split(" ").filter(Boolean);
const main = document.getElementById("main");
const pause = document.getElementById("pause");
let paused = store.get("towpath-paused") === "yes";
let stale = false, fetching = false, source = null;

// Do not reload while the user is typing or has a form open.
const busy = () => paused || document.hidden || main.querySelector(".ask[open]")
  || ["INPUT", "SELECT"].includes(document.activeElement?.tagName);

async function refresh() {
  if (fetching || busy()) { stale = true; return; }
  fetching = true; stale = false;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
    if (!fresh || busy()) { stale = true; return; }
    const row = main.querySelector("tr.at a")?.getAttribute("href");
    const open = [...main.querySelectorAll("details")].map(details => details.open);
    const active = document.activeElement, link = main.contains(active) ? active.getAttribute("href") : null;
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll("details").forEach((details, at) => { if (open[at]) details.open = true; });
    if (row) main.querySelector(`tr a[href="${CSS.escape(row)}"]`)?.closest("tr").classList.add("at");
    if (link) main.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
    follow();
  } catch { stale = true; } finally { fetching = false; }
}

function show() {
  if (!pause) return;
  pause.setAttribute("aria-pressed", String(paused));
  pause.querySelector(".label").textContent = paused ? "paused" : "live";
  pause.querySelector(".dot").classList.toggle("on", !paused && source?.readyState === 1);
}
function listen() {
  if (!topics.length || source || paused || document.hidden) return;
  source = new EventSource("/ui/live");
  // Changes before the connection are not reported, so reload once.
  source.onopen = () => { show(); refresh(); };
  source.onerror = show;
  source.onmessage = event => { if (event.data.split(" ").some(topic => topics.includes(topic))) refresh(); };
}
function silence() { source?.close(); source = null; show(); }
function togglePause() {
  paused = !paused;
  store.set("towpath-paused", paused ? "yes" : "no");
  if (paused) silence(); else { listen(); refresh(); follow(); }
  show();
}
document.addEventListener("visibilitychange", () => { if (document.hidden) silence(); else { listen(); refresh(); } });
setInterval(() => { if (stale || main.querySelector("[data-poll]")) refresh(); }, 1000);

// A search without a match continues automatically, for about 15 seconds.
async function searchOn() {
  const until = Date.now() + 15_000;
  fetching = true;
  try {
    for (let link; Date.now() < until && !paused && !document.hidden && (link = main.querySelector("a[data-search-on]"));) {
      const response = await fetch(link.href, { headers: { accept: "text/html" }, redirect: "error" });
      const fresh = response.ok && new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
      if (!fresh || main.contains(document.activeElement)) return;
      history.replaceState(null, "", link.getAttribute("href"));
      main.replaceChildren(...fresh.childNodes);
    }
  } catch { stale = true; } finally { fetching = false; }
}

// A message of a job's stream: its progress is shown, a new state reloads the page, what was appended is returned.
function jobMessage(list, text) {
  let message;
  try { message = JSON.parse(text); } catch { return null; }
  if (message.type !== "job") return JSON.stringify(message.value);
  const { state, percent, message: words } = message.value ?? {};
  const line = main.querySelector("[data-progress]");
  if (line && percent != null) {
    line.hidden = false;
    line.querySelector("progress").value = percent;
    line.querySelector("span").textContent = `${percent} %${words ? `: ${words}` : ""}`;
  }
  if (state !== list.dataset.state) refresh();
  return null;
}

// A stream's page appends new messages.
function follow() {
  const list = document.querySelector("[data-follow]");
  if (!list || paused || list.dataset.following) return;
  list.dataset.following = "yes";
  const tail = new EventSource(list.dataset.follow);
  tail.addEventListener("messages", event => {
    if (paused || !list.isConnected) { tail.close(); delete list.dataset.following; return; }
    document.querySelector("[data-until-first]")?.remove();
    for (const raw of JSON.parse(event.data)) {
      const text = list.dataset.state ? jobMessage(list, raw) : raw;
      if (text === null) continue;
      list.closest("section")?.removeAttribute("hidden");
      const item = document.createElement("li"), box = document.createElement("pre");
      item.className = "new"; box.textContent = text; item.append(box); list.append(item);
    }
    while (list.children.length > 1000) list.firstElementChild.remove();
    const url = new URL(list.dataset.follow, location.href);
    url.searchParams.set("offset", event.lastEventId);
    list.dataset.follow = url.pathname + url.search;
    if (!list.dataset.state) scrollTo({ top: document.body.scrollHeight });
  });
  // The connection has a limited lifetime; continue where it ended.
  tail.onerror = () => { tail.close(); delete list.dataset.following; if (list.isConnected) setTimeout(follow, 1000); };
}

// Rows by keyboard.
function move(step) {
  const rows = [...main.querySelectorAll("table.rows tbody tr")];
  if (!rows.length) return;
  const at = rows.findIndex(row => row.classList.contains("at"));
  rows[at]?.classList.remove("at");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
}
let went = 0;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { main.querySelectorAll(".ask[open]").forEach(ask => { ask.open = false; }); document.activeElement?.blur(); return; }
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  if (Date.now() - went < 1500) {
    went = 0;
    const place = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (place) { event.preventDefault(); location.href = place.href; return; }
  }
  const keys = {
    g: () => { went = Date.now(); }, j: () => move(1), k: () => move(-1), p: togglePause, t: toggleTheme,
    "/": () => main.querySelector("[data-first]")?.focus(), "?": () => document.getElementById("keys")?.showModal(),
    Enter: () => { if (event.target === document.body || event.target === main) main.querySelector("tr.at a")?.click(); },
  };
  if (keys[event.key]) { if (event.key !== "Enter") event.preventDefault(); keys[event.key](); }
});

// A click copies a command; over plain HTTP it selects it.
document.addEventListener("click", event => {
  const code = event.target.closest("code.cli");
  if (!code) return;
  const text = code.textContent.trim();
  const done = () => { code.classList.add("copied"); setTimeout(() => code.classList.remove("copied"), 1200); };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => getSelection().selectAllChildren(code));
  else { getSelection().selectAllChildren(code); }
});
pause?.addEventListener("click", togglePause);
document.getElementById("theme")?.addEventListener("click", toggleTheme);
document.getElementById("help")?.addEventListener("click", () => document.getElementById("keys").showModal());
listen(); follow(); show();
if (main) searchOn();
