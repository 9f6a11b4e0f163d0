// What was said and done, as a person sees it.

import { api } from "./api.js";
import { attempt, clip, clockTime, fullTime, html, Icon, IconButton, useEffect, useMemo, useRef, useState } from "./base.js";
import { exact, fieldsOf } from "./exact.js";
import { textOf } from "./conversation.js";
import { render } from "./markdown.js";

function Prose({ text, live }) {
  const made = useMemo(() => render(text), [text]);
  return html`<div class=${`prose ${live ? "caret" : ""}`} dangerouslySetInnerHTML=${{ __html: made }} onClick=${(event) => {
    const button = event.target.closest("[data-copy]");
    if (button) clip(button.closest(".block").querySelector("code").textContent);
  }}></div>`;
}

function Reasoning({ text, live }) {
  return html`<details class="fold reason"><summary>${live ? "Thinking…" : "Reasoning"}</summary><div>${text}</div></details>`;
}

function Picture({ part }) {
  const [url, setUrl] = useState(null);
  useEffect(() => {
    let made = null;
    attempt(async () => { made = URL.createObjectURL(await api.blob(part.blob)); setUrl(made); });
    return () => made && URL.revokeObjectURL(made);
  }, [part.blob]);
  return url ? html`<img src=${url} alt=${part.alt ?? "An image"} />` : html`<span class="waiting"><i></i><i></i><i></i></span>`;
}

const SAID = { "not started": "not run", denied: "denied", running: "running", finished: "done", failed: "failed", unknown: "outcome unknown", "cut off": "cut off" };

function brief(text) {
  try {
    const values = Object.values(JSON.parse(text));
    return values.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(" ").slice(0, 200);
  } catch {
    return text.slice(0, 200);
  }
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

const contentOf = (result) => (typeof result.content === "string" ? result.content : textOf(result.content));

// Everything that will run stands here. Allow works once all of it was on the screen: it fits, or it was scrolled to its end, or expanded.
function Ask({ tool, onDecide }) {
  const asked = tool.approval;
  const box = useRef(null);
  const [seen, setSeen] = useState(false);
  const [all, setAll] = useState(false);
  const known = typeof asked.arguments === "string";
  const look = () => { const at = box.current; if (at && at.scrollTop + at.clientHeight >= at.scrollHeight - 2) setSeen(true); };
  useEffect(() => {
    if (!known) return undefined;
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [known, asked.arguments]);
  const fields = known && fieldsOf(asked.arguments);
  const may = known && (seen || all);
  const why = !known ? (asked.arguments === null ? "The arguments that were asked about are not in the journal; it can only be denied." : "One moment …") : may ? "" : "Scroll to the end, or show all of it, before you allow it.";
  return html`<div class="ask" role="group" aria-label=${`May ${tool.name} run?`}>
    <p>May <code class="exact">${exact(tool.name)}</code> run with exactly this?</p>
    ${known && html`<div class=${`whole ${all ? "all" : ""}`} ref=${box} tabindex="0" role="region" aria-label="What it would run with" onScroll=${look}>
      ${fields ? fields.map(([name, value]) => html`<p class="what exact">${exact(name)}</p><pre class="exact">${exact(value)}</pre>`) : html`<pre class="exact">${exact(asked.arguments) || "nothing"}</pre>`}
    </div>`}
    <div class="push"><span role="status">${why}</span>
      ${known && !may && html`<button type="button" class="button small" onClick=${() => setAll(true)}>Show all</button>`}
      <button type="button" class="button small" onClick=${() => onDecide(tool, false)}>Deny</button>
      <button type="button" class="button small primary" disabled=${!may} onClick=${() => onDecide(tool, true)}>Allow</button></div>
  </div>`;
}

function Tool({ tool, over, may, onDecide }) {
  const state = tool.approval && !tool.result ? "asked" : tool.denied ? "denied" : tool.state;
  const said = state === "asked" ? "waits for you" : state === "denied" ? "denied" : over && tool.state === "not started" ? "not run" : tool.state === "not started" ? "called" : SAID[tool.state];
  const result = tool.result && contentOf(tool.result);
  const output = tool.output && tool.output !== result ? tool.output : null;
  return html`<div class="one-tool">
    <details class="fold tool" open=${tool.state === "running" && Boolean(output)}>
      <summary><code>${tool.name}</code><span class="brief">${brief(tool.arguments)}</span><span class=${`state ${state.replace(" off", "")}`}>${said}</span></summary>
      <div>
        <p class="what">Arguments</p><pre>${pretty(tool.arguments) || "none"}</pre>
        ${output && html`<p class="what">Output</p><pre>${output}</pre>`}
        ${result !== null && result !== undefined && html`<p class="what">Result</p><pre>${result || "empty"}</pre>`}
        ${tool.state === "unknown" && html`<p>It was started and no result came. What it did is not known; check before it is repeated.</p>`}
      </div>
    </details>
    ${state === "asked" && may && html`<${Ask} tool=${tool} onDecide=${onDecide} />`}
  </div>`;
}

function Part({ part, live }) {
  if (part.type === "text") return html`<${Prose} text=${part.text} live=${live} />`;
  if (part.type === "reasoning") return part.text ? html`<${Reasoning} text=${part.text} live=${live} />` : null;
  if (part.type === "image") return html`<${Picture} part=${part} />`;
  if (part.type === "file") return html`<p class="role">File: ${part.name ?? part.media_type}</p>`;
  return null;
}

function Acts({ item, talk, text }) {
  return html`<div class="act" role="group" aria-label="For this message">
    <${IconButton} name="copy" label="Copy" onClick=${() => clip(text)} />
    ${talk.may && html`<${IconButton} name="fork" label="Fork from here" onClick=${() => talk.onFork(item.seq)} />
      <${IconButton} name="undo" label="Rewind to here" onClick=${() => talk.onRewind(item)} />`}
  </div>`;
}

function Message({ item, talk }) {
  const text = textOf(item.parts);
  const streaming = item.state === "streaming";
  const found = talk.found === item.seq ? "found" : "";
  if (item.role === "user") {
    return html`<article class=${`message user ${found}`} id=${`m${item.seq}`} aria-label="You"><div>${text}</div><${Acts} item=${item} talk=${talk} text=${text} /></article>`;
  }
  const empty = !item.parts.some((one) => one.type !== "opaque") && !item.tools.length;
  return html`<article class=${`message ${item.role} ${found}`} id=${`m${item.seq}`} data-state=${item.state} aria-label=${item.role === "assistant" ? "Answer" : item.role} aria-busy=${streaming}>
    ${item.role === "system" && html`<div class="role">System</div>`}
    ${item.parts.map((part, number) => html`<${Part} key=${number} part=${part} live=${streaming && number === item.parts.length - 1 && !item.tools.length} />`)}
    ${item.tools.length > 0 && html`<div class="tools">${item.tools.map((tool) => html`<${Tool} key=${tool.call_id} tool=${tool} over=${talk.running !== item.turn_id} may=${talk.may} onDecide=${talk.onDecide} />`)}</div>`}
    ${streaming && empty && html`<span class="waiting" role="status"><span class="away">The answer is coming</span><i></i><i></i><i></i></span>`}
    ${item.state === "partial" && html`<div class="cut">cut off here</div>`}
    ${!streaming && text && html`<${Acts} item=${item} talk=${talk} text=${text} />`}
  </article>`;
}

const CAUSES = { cancelled: "It was cancelled", timed_out: "It took too long", client_gone: "Its client went away", shut_down: "The server was shut down", terminated: "The process ended", crashed: "The process that ran it died", taken_over: "Another process took over", abandoned: "It was given up", deleted: "The session was deleted" };

function Ending({ item, talk, last }) {
  const why = item.status === "failed" ? item.reason : CAUSES[item.cause] ?? `It was stopped (${item.reason})`;
  const word = item.status === "failed" ? "Failed" : "Interrupted";
  return html`<div class=${`ending ${item.status}`} id=${`m${item.seq}`} role="note">
    <span class="why"><b>${word}.</b> ${why}</span>
    <time datetime=${item.at} title=${fullTime(item.at)}>${clockTime(item.at)}</time>
    ${last && !talk.running && talk.may && html`<span class="push">
      <button type="button" class="button small" onClick=${() => talk.onContinue(item.turn_id)}>Continue</button>
      <button type="button" class="button small" onClick=${() => talk.onAgain(item.turn_id)}>Answer again</button>
    </span>`}
  </div>`;
}

function Compaction({ item, talk }) {
  const [seen, setSeen] = useState(false);
  return html`<details class="fold compaction" id=${`m${item.seq}`} onToggle=${(event) => { if (event.target.open) setSeen(true); }}>
    <summary><${Icon} name="fold" />${item.folded.length} earlier ${item.folded.length === 1 ? "thing is" : "things are"} summarised for the model</summary>
    <div>${seen && html`<${Prose} text=${textOf(item.parts)} /><div class="folded">${item.folded.map((one) => html`<${Plain} key=${one.key} item=${one} talk=${talk} />`)}</div>`}</div>
  </details>`;
}

function Plain({ item, talk, last }) {
  if (item.kind === "compaction") return html`<${Compaction} item=${item} talk=${talk} />`;
  if (item.kind === "ending") return html`<${Ending} item=${item} talk=${talk} last=${last} />`;
  return html`<${Message} item=${item} talk=${talk} />`;
}

// Reads its own signal, so that a delta paints one message and not the conversation.
function Held({ held, talk, last }) {
  return html`<${Plain} item=${held.shown.value} talk=${talk} last=${last} />`;
}

export const SHOWN_AT_ONCE = 150;

export function Messages({ items, talk }) {
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  // What was searched for is shown, however far back it is.
  const back = talk.found ? items.length - items.findIndex((held) => held.now.seq === talk.found) + 20 : 0;
  const shown = items.slice(-Math.max(count, back));
  const left = items.length - shown.length;
  return html`
    ${left > 0 && html`<button type="button" class="button small more" onClick=${() => setCount(shown.length + 300)}>Show ${Math.min(left, 300)} earlier of ${left}</button>`}
    ${shown.map((held, number) => html`<${Held} key=${held.now.key} held=${held} talk=${talk} last=${number === shown.length - 1} />`)}`;
}
