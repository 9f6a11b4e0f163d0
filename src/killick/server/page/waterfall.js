// When everything of a turn happened: model calls, tools side by side, waiting, retries, and the gap of a crash.

import { api } from "./api.js";
import { attempt, clockTime, html, IconButton, lasting, shortCount, useEffect, useState } from "./base.js";

const end = (from, seconds, over) => (seconds === null ? over : from + seconds * 1e6);

// The bars of one turn, in microseconds.
export function barsOf(turn, now, about = () => "") {
  const crashed = turn.status === "interrupted" && turn.cause === "crashed" && turn.last_at_us !== null && turn.seconds !== null;
  const over = turn.seconds === null ? now : turn.started_at_us + turn.seconds * 1e6;
  const alive = crashed ? turn.last_at_us : over;
  const bars = [];
  for (const call of turn.model_calls) {
    const tokens = call.usage ? `${shortCount(call.usage.input ?? 0)} tokens in, ${shortCount(call.usage.output ?? 0)} out` : "";
    bars.push({ look: call.error ? "failed" : "call", name: call.model ?? call.provider ?? "model", from: call.started_at_us, to: Math.min(end(call.started_at_us, call.seconds, over), crashed && call.error ? alive : Infinity), silent: call.first_seconds === null ? 0 : call.first_seconds * 1e6, note: [call.first_seconds === null ? "" : `first token after ${lasting(call.first_seconds * 1000)}`, call.attempt > 1 || call.retry_of ? `attempt ${call.attempt}` : "", tokens, call.error ? "broke off" : ""].filter(Boolean).join(", ") });
  }
  for (const tool of turn.tools) bars.push({ look: tool.seconds === null ? "unknown" : tool.is_error ? "failed" : "tool", name: tool.name ?? tool.call_id, about: about(tool), from: tool.started_at_us, to: end(tool.started_at_us, tool.seconds, turn.status === "running" ? now : alive), note: tool.seconds === null ? (turn.status === "running" ? "runs" : "no result") : tool.is_error ? "failed" : "" });
  for (const wait of turn.waits) bars.push({ look: "wait", name: "waits for a person", from: wait.asked_at_us, to: Math.min(end(wait.asked_at_us, wait.seconds, over), over), note: wait.approved === null ? "" : wait.approved ? "allowed" : "denied" });
  if (crashed) bars.push({ look: "gap", name: "nothing ran", from: alive, to: over, note: "the process was dead" });
  return { bars: bars.sort((one, other) => one.from - other.from), from: turn.started_at_us, to: Math.max(over, ...bars.map((one) => one.to), turn.started_at_us + 1) };
}

function Turn({ turn, number, now, open, about }) {
  const { bars, from, to } = barsOf(turn, now, about);
  const span = to - from;
  const usage = turn.model_calls.reduce((sum, one) => sum + (one.usage?.input ?? 0) + (one.usage?.output ?? 0), 0);
  return html`<details class="wave" open=${open}><summary><b>Turn ${number}</b><span>${clockTime(from / 1000)}</span><span>${lasting(span / 1000)}</span>${usage > 0 && html`<span>${shortCount(usage)} tokens</span>`}${turn.status !== "completed" && html`<span class=${`state ${turn.status === "failed" ? "failed" : turn.status === "running" ? "running" : "asked"}`}>${turn.status}</span>`}</summary>
    <ol>${bars.map((bar) => html`<li><span class="label" title=${`${bar.name} ${bar.about ?? ""}`}>${bar.name}${bar.about && html` <code>${bar.about}</code>`}</span><span class="track"><i class=${bar.look} style=${{ left: `${(100 * (bar.from - from)) / span}%`, width: `max(3px, ${(100 * (bar.to - bar.from)) / span}%)` }}></i>${bar.silent > 0 && html`<i class="silent" style=${{ left: `${(100 * (bar.from - from)) / span}%`, width: `${(100 * Math.min(bar.silent, bar.to - bar.from)) / span}%` }}></i>`}</span><small>${lasting((bar.to - bar.from) / 1000)}${bar.note ? `, ${bar.note}` : ""}</small></li>`)}</ol>
    ${!bars.length && html`<p class="empty">Nothing ran in it.</p>`}
  </details>`;
}

const LEGEND = [["call", "model"], ["silent", "before its first token"], ["tool", "tool"], ["wait", "waits for a person"], ["failed", "failed"], ["unknown", "no result"], ["gap", "dead"]];

export function Waterfall({ id, head, about, onClose }) {
  const [turns, setTurns] = useState(null);
  const [count, setCount] = useState(20);
  useEffect(() => {
    let gone = false;
    attempt(async () => { const found = await api.timeline(id); if (!gone) setTurns(found.turns); });
    return () => { gone = true; };
  }, [id, head]);
  const now = Date.now() * 1000;
  return html`<header><h2>When it happened</h2><${IconButton} name="close" label="Close" onClick=${onClose} /></header>
    <div class="body" tabindex="0" role="region" aria-label="Turns">
      <p class="legend">${LEGEND.map(([look, name]) => html`<span><i class=${`bar-${look}`}></i>${name}</span>`)}</p>
      ${turns?.slice(-count).map((turn, at) => html`<${Turn} key=${turn.id} turn=${turn} number=${Math.max(0, turns.length - count) + at + 1} now=${now} open=${at === Math.min(count, turns.length) - 1} about=${about} />`).reverse()}
      ${turns && turns.length > count && html`<button type="button" class="button small" onClick=${() => setCount(count + 50)}>Earlier turns</button>`}
      ${turns && !turns.length && html`<p class="empty">Nothing has run yet.</p>`}
    </div>`;
}
