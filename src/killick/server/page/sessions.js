// The list of sessions: search as you type, filters, pins.

import { api } from "./api.js";
import { address, attempt, computed, daysAgo, follows, fullTime, go, html, Icon, IconButton, route, shortTime, signal, titleOf, toast, useEffect, useState } from "./base.js";
import { count as waits, questions } from "./needs.js";

export const sessions = signal([]);
export const query = signal("");
export const filter = signal("all");
export const loaded = signal(false);
const hits = signal([]);
const next = signal(null);
const open = signal(false);
export const sideOpen = open;

const FILTERS = { all: ["All", {}], pinned: ["Pinned", { pinned: true }], interrupted: ["Interrupted", { interrupted: true }], archived: ["Archived", { archived: "yes" }], deleted: ["Deleted", { deleted: true, archived: "all" }] };

// Beside the chips: a project, a model, a tag.
const WITHIN = { project: "Project", model: "Model", tag: "Tag" };
export const within = signal({});
const narrowed = computed(() => Object.values(within.value).some(Boolean));
const wanted = () => ({ ...FILTERS[filter.value][1], ...within.value, q: query.value.trim() || undefined });

let asking = 0;

// Nobody has asked for it: when it fails, the page says that the server is gone, and this is silent.
export async function reload() {
  const mine = ++asking;
  const words = query.value.trim();
  // What is pinned is all there, however long ago it was touched.
  const both = filter.value === "all" && !words ? [api.sessions({ ...wanted(), pinned: true, limit: 500 })] : [];
  const [page, pins] = await Promise.all([api.sessions({ ...wanted(), limit: 60 }), ...both]).catch(() => []);
  if (mine !== asking || !page) return;
  const known = new Set(page.sessions.map((one) => one.id));
  sessions.value = [...page.sessions, ...(pins?.sessions.filter((one) => !known.has(one.id)) ?? [])];
  next.value = page.next;
  loaded.value = true;
  if (!words) { hits.value = []; return; }
  try {
    const found = await api.search(words.split(/\s+/).map((one) => (/^[\p{L}\p{N}]+$/u.test(one) ? `${one}*` : one)).join(" "));
    if (mine === asking) hits.value = found.hits.filter((one) => !one.hidden);
  } catch {
    if (mine === asking) hits.value = [];
  }
}

async function more() {
  const page = await attempt(() => api.sessions({ ...wanted(), limit: 60, before: next.value }));
  if (!page) return;
  const known = new Set(sessions.value.map((one) => one.id));
  sessions.value = [...sessions.value, ...page.sessions.filter((one) => !known.has(one.id))];
  next.value = page.next;
}

let timer = 0;
function type(value) {
  query.value = value;
  clearTimeout(timer);
  timer = setTimeout(reload, 130);
}

const groups = computed(() => {
  const found = new Map();
  const put = (name, one) => found.set(name, [...(found.get(name) ?? []), one]);
  for (const one of sessions.value) {
    const ago = daysAgo(one.updated_at);
    if (one.pinned) put("Pinned", one);
    else put(ago <= 0 ? "Today" : ago === 1 ? "Yesterday" : ago < 7 ? "This week" : ago < 31 ? "This month" : "Earlier", one);
  }
  const pinned = found.get("Pinned");
  found.delete("Pinned");
  return pinned ? [["Pinned", pinned], ...found] : [...found];
});

const WORDS = { running: "answering", interrupted: "interrupted", failed: "failed", completed: "" };

function Row({ one, writes }) {
  const here = route.value.id === one.id;
  const path = address(one.id);
  const title = titleOf(one);
  const asks = one.status === "running" && questions.value.has(one.id);
  const said = [shortTime(one.updated_at), asks ? "waits for you" : WORDS[one.status], one.parent && "subagent", one.fork && "fork", ...one.tags].filter(Boolean).join(" · ");
  if (one.deleted_at) {
    return html`<li class="row gone"><span class="name">${title}</span><span class="when">deleted ${shortTime(one.deleted_at)}</span>
      ${writes && html`<button type="button" class="button small" aria-label=${`Restore ${title}`} onClick=${() => attempt(async () => { await api.restore(one.id); await reload(); go(path); })}>Restore</button>`}</li>`;
  }
  return html`<li class=${`row ${one.parent ? "child" : ""}`}>
    <a href=${path} aria-current=${here ? "page" : null} title=${fullTime(one.updated_at)} onClick=${(event) => { follows(event, path); open.value = false; }}>
      <span class=${`dot ${asks ? "interrupted" : one.status ?? ""}`} aria-hidden="true"></span>
      <span class=${`name ${one.title ? "" : one.opening ? "opening" : "none"}`}>${title}</span>
      <span class="when">${said}</span>
    </a>
    ${writes && html`<button type="button" class="icon pin" aria-pressed=${one.pinned} aria-label=${`${one.pinned ? "Unpin" : "Pin"} ${title}`}
      onClick=${() => attempt(async () => { await api.change(one.id, { pinned: !one.pinned }); await reload(); })}><${Icon} name="pin" /></button>`}
  </li>`;
}

function Snippet({ hit }) {
  const pieces = [];
  let last = 0;
  for (const [from, to] of hit.matches) {
    pieces.push(hit.snippet.slice(last, from), html`<mark>${hit.snippet.slice(from, to)}</mark>`);
    last = to;
  }
  pieces.push(hit.snippet.slice(last));
  const path = address(hit.session_id, hit.seq);
  return html`<li><a class="hit" href=${path} onClick=${(event) => { follows(event, path); open.value = false; }}><b>${hit.title ?? "Untitled"}</b><span>${pieces}</span></a></li>`;
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("killick-theme", root.dataset.theme);
}

// What can be chosen is what the sessions that were seen have.
function Filters() {
  const values = (pick) => [...new Set(sessions.value.flatMap(pick).filter(Boolean))].sort();
  const known = { project: values((one) => [one.project?.root, one.project?.cwd]), model: values((one) => one.models), tag: values((one) => one.tags) };
  return html`<details class="within" open=${narrowed.value}><summary>More filters${narrowed.value ? " (on)" : ""}</summary>
    ${Object.entries(WITHIN).map(([name, label]) => html`<label key=${name}><span>${label}</span><input list=${`known-${name}`} value=${within.value[name] ?? ""} onChange=${(event) => { within.value = { ...within.value, [name]: event.target.value.trim() || undefined }; reload(); }} /><datalist id=${`known-${name}`}>${known[name].map((one) => html`<option value=${one} />`)}</datalist></label>`)}
  </details>`;
}

async function bringIn(files) {
  for (const file of files) {
    await attempt(async () => {
      const { sessions: made, problems } = await api.take(file);
      await reload();
      go(address(made[0]));
      const more = problems.length ? `; ${problems.length} ${problems.length === 1 ? "thing was" : "things were"} repaired or left out` : "";
      toast(`${made.length} ${made.length === 1 ? "session is" : "sessions are"} here now${more}`);
    });
  }
}

// A file that is dropped anywhere on the page is imported.
function useDrop(writes) {
  const [over, setOver] = useState(false);
  useEffect(() => {
    if (!writes) return undefined;
    const holds = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const drag = (event) => { if (holds(event)) { event.preventDefault(); setOver(true); } };
    const leave = (event) => { if (!event.relatedTarget) setOver(false); };
    const drop = (event) => { if (holds(event)) { event.preventDefault(); setOver(false); bringIn([...event.dataTransfer.files]); } };
    const each = { dragover: drag, dragleave: leave, drop };
    for (const [name, hear] of Object.entries(each)) addEventListener(name, hear);
    return () => { for (const [name, hear] of Object.entries(each)) removeEventListener(name, hear); };
  }, [writes]);
  return over;
}

export function Sidebar({ writes, onNew, onHelp }) {
  const over = useDrop(writes);
  useEffect(() => { reload(); }, [filter.value]);
  useEffect(() => {
    const every = setInterval(() => { if (!document.hidden) reload(); }, 5000);
    return () => clearInterval(every);
  }, []);
  useEffect(() => {
    const inside = document.querySelector(".side")?.contains(document.activeElement);
    if (open.value && !inside) document.querySelector(".brand a").focus();
  }, [open.value]);
  const found = hits.value.length > 0;
  return html`<nav class="side" aria-label="Sessions">
    <div class="brand">
      <a href="/" onClick=${(event) => follows(event, "/")}><img src="/assets/icon.svg" alt="" />Killick</a>
      <span class="push">
        <a class="icon bell" href="/needs" aria-label=${waits.value ? `Needs you: ${waits.value}` : "Needs you"} title="Needs you" onClick=${(event) => { follows(event, "/needs"); open.value = false; }}><${Icon} name="bell" />${waits.value > 0 && html`<b>${waits.value}</b>`}</a>
        <${IconButton} name="chart" label="Figures" onClick=${() => { go("/figures"); open.value = false; }} />
        <${IconButton} name="theme" label="Light or dark" onClick=${theme} />
        <${IconButton} name="help" label="Keys" onClick=${onHelp} />
      </span>
    </div>
    <div class="seek">
      ${writes && html`<button type="button" class="button primary" onClick=${onNew}><${Icon} name="plus" />New session</button>`}
      <label class="search"><span class="away">Search sessions</span><${Icon} name="search" />
        <input id="search" type="search" placeholder="Search" autocomplete="off" value=${query.value} onInput=${(event) => type(event.target.value)} onKeyDown=${(event) => { if (event.key === "Escape") { event.preventDefault(); type(""); event.target.blur(); } }} /></label>
      <div class="chips" role="group" aria-label="Show">${Object.entries(FILTERS).map(([name, [label]]) => html`<button type="button" class="chip" aria-pressed=${filter.value === name} onClick=${() => { filter.value = name; }}>${label}</button>`)}</div>
      <${Filters} />
    </div>
    <div class="list">
      ${groups.value.map(([name, of]) => html`<section key=${name}><h2>${name}</h2><ul>${of.map((one) => html`<${Row} key=${one.id} one=${one} writes=${writes} />`)}</ul></section>`)}
      ${next.value && html`<button type="button" class="button small" onClick=${more}>More</button>`}
      ${found && html`<section><h2>Said in</h2><ul>${hits.value.map((hit) => html`<${Snippet} key=${`${hit.session_id}/${hit.message_id}`} hit=${hit} />`)}</ul></section>`}
      ${loaded.value && !sessions.value.length && !found && html`<p class="empty">${query.value || narrowed.value || filter.value !== "all" ? "Nothing is found." : "No sessions here yet."}</p>`}
    </div>
    ${writes && html`<label class="bring"><span>Import: drop a file here, or choose one</span><input type="file" aria-label="Import files" multiple accept=".jsonl,.json,.md" onChange=${(event) => { bringIn([...event.target.files]); event.target.value = ""; }} /></label>`}
    ${over && html`<div class="dropping" role="status">Drop it: its sessions are imported</div>`}
  </nav>`;
}
