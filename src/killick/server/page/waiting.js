// The page of what waits for a person.

import { api } from "./api.js";
import { address, attempt, follows, fullTime, html, IconButton, shortTime, titleOf, toast, useEffect } from "./base.js";
import { Ask } from "./approval.js";
import { brief } from "./conversation.js";
import { lines, look, nameOf, told, WORDS } from "./needs.js";

function act(work) { return () => attempt(async () => { await work(); await look(); }); }

function Line({ line, may }) {
  const path = address(line.session.id, line.seq);
  const id = line.session.id;
  const decide = async (_tool, approved, always) => attempt(async () => {
    await api.decide(id, line.approval, approved, always);
    if (line.session.status !== "running") await api.turn(id, { prompt: null, continues: line.turn_id });
    await look();
  });
  const settle = (one, outcome) => act(() => api.settle(id, { turn_id: one.turn_id, call_id: one.call_id, outcome }));
  const goOn = act(() => api.turn(id, { prompt: null, continues: line.turn_id }));
  const tool = line.approval && { name: line.tool ?? "the tool", approval: line.approval };
  return html`<li class=${`need ${line.kind}`}>
    <header><b>${WORDS[line.kind] ?? line.kind}</b><a href=${path} onClick=${(event) => follows(event, path)}>${titleOf(line.session)}</a><time title=${fullTime(line.session.updated_at)}>${shortTime(line.session.updated_at)}</time></header>
    ${line.words && html`<p>${line.words}</p>`}
    ${tool && may && html`<${Ask} tool=${tool} onDecide=${decide} />`}
    ${line.unknown.map((one) => html`<div class="doubt" key=${one.call_id}><span><code>${one.name}</code> <span class="brief">${brief(one.arguments)}</span></span>
      <small>It was started and no result came. Look at what it would have changed, then say what you found.</small>
      ${may && html`<span class="push"><button type="button" class="button small" onClick=${settle(one, "ran")}>It ran</button><button type="button" class="button small" onClick=${settle(one, "did_not_run")}>It did not run</button></span>`}</div>`)}
    ${may && line.kind === "turn_ended" && line.turn_id && html`<div class="push"><button type="button" class="button small" onClick=${goOn}>Continue</button></div>`}
  </li>`;
}

export function Needs({ may, onMenu }) {
  useEffect(() => { look(); }, []);
  const ask = async () => { const answer = await Notification.requestPermission(); toast(answer === "granted" ? "You will be told while this tab is in the background" : "The browser does not allow it"); };
  return html`<main class="main" id="main" tabindex="-1"><div class="needs" tabindex="0" role="region" aria-label="Needs you"><div>
    <header><div><${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${onMenu} /><h1>Needs you</h1></div>${"Notification" in window && Notification.permission === "default" && html`<button type="button" class="button small" onClick=${ask}>Notify me</button>`}</header>
    ${may && lines.value.some((line) => line.approval) && html`<p class="keys">With a question in focus, <kbd>y</kbd> allows it and <kbd>n</kbd> denies it.</p>`}
    <ul>${lines.value.map((line) => html`<${Line} key=${nameOf(line)} line=${line} may=${may} />`)}</ul>
    ${told.value && !lines.value.length && html`<p class="empty">Nothing waits for you.</p>`}
  </div></div></main>`;
}
