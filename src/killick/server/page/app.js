// The page: sessions at the side, one of them in the middle, and what holds for all of it.

import { api, token, whenTokenNeeded } from "./api.js";
import { address, attempt, effect, go, html, Icon, IconButton, Later, mount, newKey, route, signal, toasts, toast, useEffect, useRef } from "./base.js";
import { count, watch } from "./needs.js";
import { lacks, Lost, panel, may, model, NewSession, Notice, SessionView } from "./session.js";
import { reload, Sidebar, sideOpen } from "./sessions.js";

const dialog = signal(null);

const stored = localStorage.getItem("killick-theme");
if (stored) document.documentElement.dataset.theme = stored;

// Nothing is written until something is said.
async function begin(prompt) {
  if (!prompt) { go("/new"); return undefined; }
  return attempt(async () => {
    const { id } = await api.create({});
    await api.turn(id, { prompt }, newKey());
    go(address(id));
    await reload();
  });
}

const TRIES = ["Write a short story about a lighthouse keeper", "Explain how rainbows form", "List ten names for a boat"];

function Home() {
  useEffect(() => { document.title = "Killick"; }, []);
  return html`<main class="main" id="main" tabindex="-1">
    <header class="head only-small-head"><${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} /></header><${Lost} />
    <div class="welcome"><img src="/assets/icon.svg" alt="" /><h1>Nothing is lost here</h1>
      <p>Stop an answer, close the tab, pull the plug: what was said and done is kept, and every conversation goes on where it was.</p>
      ${may.value === "write" && html`<button type="button" class="button primary" onClick=${() => begin()}><${Icon} name="plus" />New session</button>
      ${lacks.value ? html`<p class="lacks" role="note">${lacks.value}</p>` : html`<div class="tries" role="group" aria-label="Or begin with">${TRIES.map((one) => html`<button type="button" class="button small" key=${one} onClick=${() => begin(one)}>${one}</button>`)}</div>`}`}
    </div></main>`;
}

function Nothing() {
  useEffect(() => { document.title = "Not found · Killick"; }, []);
  return html`<${Notice} title="There is nothing here">No page of this server has the address <code>${location.pathname.slice(0, 200)}</code>. It may be mistyped, or a link to it may be old.<//>`;
}

const figures = () => import("./figures.js");
const waiting = () => import("./waiting.js");

// How much waits stands in the title of the tab, whatever else the title says.
let titled = "";
function countInTitle() {
  const title = document.title.replace(/^\(\d+\) /, "");
  const now = count.value ? `(${count.value}) ${title}` : title;
  if (now !== document.title) { titled = now; document.title = now; }
}

function Dialog({ name }) {
  const box = useRef(null);
  useEffect(() => { box.current?.showModal(); }, []);
  const close = () => { dialog.value = null; };
  if (name === "token" || name === "wrong") {
    const save = (event) => { event.preventDefault(); token.set(new FormData(event.target).get("token").trim()); close(); location.reload(); };
    return html`<dialog ref=${box} onClose=${close} aria-labelledby="asked"><form onSubmit=${save}>
      <h2 id="asked">${name === "wrong" ? "That token is not valid" : "A token is needed"}</h2>${name === "wrong" && html`<p role="alert">The server does not know the token that this tab has shown: it is mistyped, or it was revoked.</p>`}<p>Make one where the server runs, with <code>killick token make NAME</code>, and paste it here. This tab forgets it when it is closed.</p>
      <label><span class="away">Token</span><input name="token" type="password" autocomplete="off" required autofocus /></label>
      <div class="foot"><button class="button primary">Go on</button></div></form></dialog>`;
  }
  return html`<dialog ref=${box} onClose=${close} aria-labelledby="keys"><form method="dialog"><h2 id="keys">Keys</h2>
    <dl><dt>Ctrl K</dt><dd>search</dd><dt>Ctrl J</dt><dd>new session</dd><dt>/</dt><dd>to the message field</dd><dt>Enter</dt><dd>send, or queue while it answers</dd><dt>Esc</dt><dd>stop the answer</dd><dt>Ctrl .</dt><dd>what the model is sent</dd><dt>y n</dt><dd>allow or deny the question in focus</dd><dt>Alt ↑ ↓</dt><dd>session before and after</dd><dt>?</dt><dd>this list</dd></dl>
    <div class="foot"><button class="button primary">Close</button></div></form></dialog>`;
}

function keys(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  const control = event.ctrlKey || event.metaKey;
  const does = () => event.preventDefault();
  if (control && event.key === "k") { does(); sideOpen.value = matchMedia("(max-width: 820px)").matches; document.getElementById("search")?.focus(); }
  else if (control && event.key === "j") { does(); if (may.value === "write") begin(); }
  else if (control && event.key === ".") { does(); panel.value = panel.value === "sent" ? null : "sent"; }
  else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    does();
    const links = [...document.querySelectorAll(".row > a")];
    const at = links.findIndex((one) => one.getAttribute("aria-current") === "page");
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "ArrowUp" ? -1 : 1)))]?.click();
  } else if (!typing && event.key === "/") { does(); document.getElementById("prompt")?.focus(); }
  else if (!typing && event.key === "?") { does(); dialog.value = "keys"; }
  else if (event.key === "Escape" && sideOpen.value) { does(); sideOpen.value = false; document.querySelector(".head .only-small")?.focus(); }
  else if (!typing && event.key === "Escape") document.querySelector(".stop")?.click();
}

function App() {
  useEffect(() => {
    whenTokenNeeded((shown) => { dialog.value = shown ? "wrong" : "token"; });
    const unwatch = watch();
    const stop = effect(countInTitle);
    const titles = new MutationObserver(() => { if (document.title !== titled) countInTitle(); });
    titles.observe(document.querySelector("title"), { childList: true });
    addEventListener("keydown", keys);
    attempt(async () => { const about = await api.about(); may.value = about.may; model.value = about.model; lacks.value = about.lacks; });
    const online = () => toast("Back online", { ms: 2000 });
    addEventListener("online", online);
    return () => { unwatch(); stop(); titles.disconnect(); removeEventListener("keydown", keys); removeEventListener("online", online); };
  }, []);
  const { name, id } = route.value;
  const aside = panel.value && name === "session" && !route.value.then && !route.value.beside;
  return html`<a class="skip" href="#main">To the conversation</a>
    <div class=${`frame ${aside ? "aside" : ""} ${sideOpen.value ? "open" : ""}`}>
      <${Sidebar} writes=${may.value === "write"} onNew=${() => { sideOpen.value = false; begin(); }} onHelp=${() => { dialog.value = "keys"; }} />
      ${sideOpen.value && html`<button type="button" class="shade only-small" aria-label="Close the list" onClick=${() => { sideOpen.value = false; }}></button>`}
      ${name === "session" ? html`<${SessionView} id=${id} />` : name === "figures" ? html`<${Later} from=${figures} name="Figures" />` : name === "new" ? html`<${NewSession} />` : name === "needs" ? html`<${Later} from=${waiting} name="Needs" may=${may.value === "write"} onMenu=${() => { sideOpen.value = true; }} />` : name === "nothing" ? html`<${Nothing} />` : html`<${Home} />`}
    </div>
    <div class="toasts" role="status" aria-live="polite">${toasts.value.map((one) => html`<div class="toast" key=${one.key}><span>${one.text}</span>${one.action && html`<button type="button" onClick=${() => { one.onAction(); toasts.value = toasts.value.filter((other) => other !== one); }}>${one.action}</button>`}</div>`)}</div>
    ${dialog.value && html`<${Dialog} key=${dialog.value} name=${dialog.value} />`}`;
}

mount(html`<${App} />`, document.getElementById("app"));
