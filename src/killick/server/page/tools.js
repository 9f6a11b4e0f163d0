// A tool call as what it is: a command in a terminal, a change of a file, a tree, a picture.

import { api } from "./api.js";
import { attempt, html, useMemo, useState } from "./base.js";
import { Ask } from "./approval.js";
import { brief, COMMANDS, KEPT, MANY, parsed, PATHS, quiet, textIn } from "./conversation.js";
import { Part, Run } from "./messages.js";
import { Terminal } from "./terminal.js";

const SAID = { "not started": "not run", denied: "denied", running: "running", finished: "done", failed: "failed", unknown: "outcome unknown", "cut off": "cut off" };

// -- a change of a file ---------------------------------------------------------------------------

// The longest common run of lines, by the usual table; where that would be too large, all of both.
export function differing(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const one = before.slice(head, before.length - tail);
  const other = after.slice(head, after.length - tail);
  const middle = [];
  if (one.length * other.length > 250000) middle.push(...one.map((text) => ["-", text]), ...other.map((text) => ["+", text]));
  else {
    const table = Array.from({ length: one.length + 1 }, () => new Uint32Array(other.length + 1));
    for (let a = one.length - 1; a >= 0; a -= 1) for (let b = other.length - 1; b >= 0; b -= 1) table[a][b] = one[a] === other[b] ? table[a + 1][b + 1] + 1 : Math.max(table[a + 1][b], table[a][b + 1]);
    let a = 0;
    let b = 0;
    while (a < one.length || b < other.length) {
      if (a < one.length && b < other.length && one[a] === other[b]) { middle.push([" ", one[a]]); a += 1; b += 1; }
      else if (b >= other.length || (a < one.length && table[a + 1][b] >= table[a][b + 1])) { middle.push(["-", one[a]]); a += 1; }
      else { middle.push(["+", other[b]]); b += 1; }
    }
  }
  return [...before.slice(0, head).map((text) => [" ", text]), ...middle, ...before.slice(before.length - tail).map((text) => [" ", text])];
}

function changeOf(value) {
  if (!value || typeof value !== "object") return null;
  const patch = textIn(value, ["patch", "diff", "input"]);
  if (patch && /^(\*\*\* |--- |\+\+\+ |@@|diff )/m.test(patch)) return { path: textIn(value, PATHS) ?? null, lines: patch.split("\n").map((line) => (/^(\+\+\+|---|\*\*\*|@@|diff |index )/.test(line) ? ["@", line] : "+-".includes(line[0] ?? " ") && line ? [line[0], line.slice(1)] : [" ", line.slice(1)])) };
  const path = textIn(value, PATHS);
  if (!path) return null;
  const after = textIn(value, ["new_string", "new_str", "new_text", "replace"]);
  if (after !== undefined) return { path, lines: differing((textIn(value, ["old_string", "old_str", "old_text", "search"]) ?? "").split("\n"), after.split("\n")) };
  const content = textIn(value, ["content", "file_text", "contents", "text"]);
  return content === undefined ? null : { path, lines: content.replace(/\n$/, "").split("\n").map((line) => ["+", line]) };
}

const LOOK = { "+": "added", "-": "gone", "@": "where", " ": "" };
const WORD = { "+": "added", "-": "removed" };
const SHOWN = 400;

function Change({ change }) {
  const [all, setAll] = useState(false);
  const lines = all ? change.lines : change.lines.slice(0, SHOWN);
  const count = (mark) => change.lines.filter(([one]) => one === mark).length;
  return html`<figure class="change"><figcaption><code>${change.path ?? "patch"}</code><span class="added">+${count("+")}</span><span class="gone">−${count("-")}</span></figcaption>
    <pre tabindex="0">${lines.map(([mark, text]) => html`<span class=${LOOK[mark]}>${WORD[mark] && html`<b class="away">${WORD[mark]}: </b>`}<i aria-hidden="true">${mark === "@" ? " " : mark}</i>${text}${"\n"}</span>`)}</pre>
    ${!all && change.lines.length > SHOWN && html`<button type="button" class="button small" onClick=${() => setAll(true)}>Show all ${change.lines.length} lines</button>`}</figure>`;
}

// -- a tree ---------------------------------------------------------------------------------------

function Leaf({ value }) {
  const kind = value === null ? "null" : typeof value;
  return html`<span class=${`leaf ${kind}`}>${kind === "string" ? value : JSON.stringify(value)}</span>`;
}

export function Tree({ name, value, depth = 0 }) {
  const [open, setOpen] = useState(depth < 3);
  const [count, setCount] = useState(100);
  if (value === null || typeof value !== "object") return html`<div class="twig">${name !== undefined && html`<b>${name}</b>`}<${Leaf} value=${value} /></div>`;
  const entries = Array.isArray(value) ? value.map((one, at) => [at, one]) : Object.entries(value);
  return html`<details class="twig" open=${open} onToggle=${(event) => { event.stopPropagation(); setOpen(event.currentTarget.open); }}><summary>${name !== undefined && html`<b>${name}</b>`}<span>${Array.isArray(value) ? `${entries.length} in a list` : `${entries.length} field${entries.length === 1 ? "" : "s"}`}</span></summary>
    ${open && html`<div>${entries.slice(0, count).map(([key, one]) => html`<${Tree} key=${key} name=${String(key)} value=${one} depth=${depth + 1} />`)}${entries.length > count && html`<button type="button" class="button small" onClick=${() => setCount(count + 500)}>${entries.length - count} more</button>`}</div>`}</details>`;
}

// -- one call -------------------------------------------------------------------------------------

const mediaIn = (result) => (Array.isArray(result?.content) ? result.content.filter((one) => one.type === "image" || one.type === "file") : []);
const textOfResult = (result) => (typeof result.content === "string" ? result.content : result.content.filter((one) => one.type === "text").map((one) => one.text).join("\n"));

function Inside({ tool, message, talk }) {
  const value = useMemo(() => parsed(tool.arguments), [tool.arguments]);
  const command = textIn(value, COMMANDS);
  const change = useMemo(() => changeOf(value), [value]);
  const media = mediaIn(tool.result);
  const said = tool.result ? textOfResult(tool.result) : null;
  const result = said === "" && media.length ? null : said;
  const tree = useMemo(() => (result && result.length <= KEPT && /^\s*[[{]/.test(result) ? parsed(result) : undefined), [result]);
  const whole = async (field) => {
    const all = await attempt(() => api.tool(talk.id, message.id, tool.call_id));
    return all && (field === "output" ? all.output ?? "" : textOfResult(all.result));
  };
  const live = tool.state === "running";
  const same = result !== null && tool.output !== null && (result.startsWith(tool.output) || result.endsWith(tool.output));
  return html`<div>
    ${change ? html`<${Change} change=${change} />` : command === undefined && html`<p class="what">Arguments</p>${value && typeof value === "object" && Object.keys(value).length ? html`<div class="tree"><${Tree} value=${value} /></div>` : html`<pre>${tool.arguments || "none"}</pre>`}`}
    ${command !== undefined && tool.output === null && result === null && html`<pre class="terminal"><span class="command">${command}</span></pre>`}
    ${tool.output !== null && !same && html`<p class="what">Output</p><${Terminal} text=${tool.output} from=${tool.output_from ?? 0} total=${tool.output_chars} live=${live} command=${command} onAll=${() => whole("output")} />`}
    ${result !== null && html`${(command === undefined || (tool.output !== null && !same)) && html`<p class="what">Result</p>`}${tree !== undefined && tree !== null ? html`<div class="tree"><${Tree} value=${tree} /></div>` : html`<${Terminal} text=${result || "empty"} total=${tool.result_chars} keep="start" command=${tool.output === null || same ? command : undefined} onAll=${() => whole("result")} />`}`}
    ${media.map((part) => html`<${Part} part=${part} />`)}
    ${tool.state === "unknown" && !tool.settled && html`<p>It was started and no result came. What it did is not known; check before it is repeated.</p>`}
    ${tool.settled && html`<p class="settled">It ${tool.settled.outcome === "did_not_run" ? "did not run" : "ran"}, as a ${tool.settled.by} found out.${tool.settled.evidence ? ` ${tool.settled.evidence}` : ""}</p>`}
  </div>`;
}

export function stateOf(tool, over) {
  const state = tool.approval && !tool.result ? "asked" : tool.denied ? "denied" : tool.state;
  const words = state === "asked" ? "waits for you" : state === "denied" ? "denied" : tool.settled && !tool.result ? (tool.settled.outcome === "did_not_run" ? "did not run" : "ran") : tool.state === "not started" ? (over ? "not run" : "called") : SAID[tool.state];
  return { state, words };
}

export function Tool({ tool, message, over, talk }) {
  const [open, setOpen] = useState(false);
  const { state, words } = stateOf(tool, over);
  const shown = open || (tool.state === "running" && Boolean(tool.output));
  return html`<div class="one-tool">
    <details class="fold tool" open=${shown} onToggle=${(event) => { if (event.target === event.currentTarget && event.currentTarget.open !== shown) setOpen(event.currentTarget.open); }}>
      <summary onClick=${(event) => { event.preventDefault(); setOpen(!shown); }}><code>${tool.name}</code><span class="brief">${brief(tool.arguments)}</span><span class=${`state ${state.replace(/ .*/, "")}`}>${words}</span></summary>
      ${shown && html`<${Inside} tool=${tool} message=${message} talk=${talk} />`}
    </details>
    ${state === "asked" && talk.may && html`<${Ask} tool=${tool} onDecide=${talk.onDecide} />`}
  </div>`;
}

export function runsOf(tools) {
  const runs = [];
  for (const tool of tools) {
    const last = runs.at(-1);
    if (last && quiet(tool) && last.every((one) => quiet(one) && one.name === tool.name)) last.push(tool);
    else runs.push([tool]);
  }
  return runs.flatMap((run) => (run.length >= MANY ? [run] : run.map((one) => [one])));
}

export function Tools({ message, over, talk }) {
  return html`<div class="tools">${runsOf(message.tools).map((run) => {
    const each = () => run.map((tool) => html`<${Tool} key=${tool.call_id} tool=${tool} message=${message} over=${over} talk=${talk} />`);
    return run.length > 1 ? html`<${Run} key=${`r${run[0].call_id}`} tools=${run} count=${run.length}>${each}<//>` : each();
  })}</div>`;
}
