// What every part of the page uses: the library, addresses, words, times, icons, toasts.

import { batch, computed, effect, Fragment, h, htm, render as mount, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/library.js";

export const html = htm.bind(h);
export { mount, Fragment, useEffect, useLayoutEffect, useMemo, useRef, useState, signal, computed, batch, effect };

// -- addresses: the browser's own history, so that back and reload work ---------------------------

function parse() {
  const found = /^\/s\/(.+)$/.exec(location.pathname);
  const number = (name) => Number(new RegExp(`[?&]${name}=(\\d+)`).exec(location.search)?.[1] ?? 0);
  if (found) return { name: "session", id: decodeURIComponent(found[1]), seq: number("at"), then: number("then"), beside: /[?&]beside=([^&]+)/.exec(location.search)?.[1] ?? null };
  const name = { "/": "home", "/new": "new", "/needs": "needs", "/figures": "figures" }[location.pathname] ?? "nothing";
  return { name, id: null, seq: 0 };
}

export const route = signal(parse());
addEventListener("popstate", () => { route.value = parse(); });

export function go(path, { replace = false } = {}) {
  if (path !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", path);
  route.value = parse();
}

export const address = (id, seq) => `/s/${encodeURIComponent(id)}${seq ? `?at=${seq}` : ""}`;

// Links that stay on the page; a click with a key held is the browser's.
export function follows(event, path) {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(path);
}

// What a session is called: without a title, by how it begins.
export const titleOf = (session) => session.title ?? session.opening ?? "Untitled";

// -- times ----------------------------------------------------------------------------------------

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

const dayOf = (at) => new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();

export function daysAgo(text) {
  return Math.round((dayOf(new Date()) - dayOf(new Date(text))) / 86400000);
}
export function shortTime(text) {
  const at = new Date(text);
  return daysAgo(text) === 0 ? clock.format(at) : day.format(at);
}
export const fullTime = (text) => full.format(new Date(text));
export const clockTime = (text) => clock.format(new Date(text));

export const lasting = (ms) => (ms < 1 ? "<1 ms" : ms < 950 ? `${Math.round(ms)} ms` : ms < 59500 ? `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s` : ms < 3570000 ? `${Math.round(ms / 60000)} min` : ms < 86400000 ? `${(ms / 3600000).toFixed(1)} h` : `${Math.round(ms / 86400000)} days`);
export const shortCount = (value) => (value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString());
export const money = (value) => (value === 0 ? "$0" : `$${value < 0.1 ? value.toFixed(3) : value.toFixed(2)}`);

export const newKey = () => crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");

// -- toasts ---------------------------------------------------------------------------------------

export const toasts = signal([]);
let number = 0;

export function toast(text, { action, onAction, ms = 6000 } = {}) {
  const one = { key: ++number, text, action, onAction };
  toasts.value = [...toasts.value.filter((other) => other.text !== text).slice(-2), one];
  setTimeout(() => { toasts.value = toasts.value.filter((other) => other !== one); }, ms);
}

export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.status !== 401) toast(error.message);
    return undefined;
  }
}

export const clip = async (text) => {
  await navigator.clipboard.writeText(text);
  toast("Copied", { ms: 1500 });
};

// -- icons ----------------------------------------------------------------------------------------

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3-1-6zM12 15v5",
  chart: "M5 20V10M12 20V4M19 20v-7",
  theme: "M12 4a8 8 0 1 0 0 16V4z",
  dots: "M6 11.4a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2zM12 11.4a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2zM18 11.4a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2z",
  eye: "M3 12s3.5-6 9-6 9 6 9 6-3.5 6-9 6-9-6-9-6zM12 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4z",
  fork: "M7 5v6a4 4 0 0 0 4 4h6M7 11v8M14 12l3 3-3 3",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  copy: "M9 9h10v11H9zM5 15V4h10",
  down: "M12 5v14M6 13l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  bars: "M4 6h9M8 12h10M13 18h7",
  bell: "M6 16V11a6 6 0 1 1 12 0v5l2 2H4zM10 20h4",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
  box: "M4 7h16v4H4zM6 11v8h12v-8M10 14h4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  fold: "M5 5h14M5 19h14M12 8v8M9 13l3 3 3-3",
  pen: "M5 19l1-4L16 5l3 3L9 18l-4 1z",
  help: "M9.5 9a2.5 2.5 0 1 1 3.5 2.3c-.8.4-1 .9-1 1.7M12 17h.01",
};
export const Icon = ({ name }) => html`<svg class="i" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
export const IconButton = ({ name, label, ...rest }) => html`<button type="button" class="icon" aria-label=${label} title=${label} ...${rest}><${Icon} name=${name} /></button>`;

// -- parts of the page that are fetched when they are first needed ----------------------------------

const fetched = new Map();

export function Later({ from, name, ...rest }) {
  const [, again] = useState(0);
  const Part = fetched.get(from)?.[name];
  useEffect(() => {
    let gone = false;
    if (!Part) from().then((module) => { fetched.set(from, module); if (!gone) again(1); });
    return () => { gone = true; };
  }, [from]);
  return Part ? html`<${Part} ...${rest} />` : null;
}
