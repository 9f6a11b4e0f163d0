// Any moment of the past: what a person saw, what the model would have been sent, what had run, where it died.

import { api } from "./api.js";
import { address, attempt, fullTime, go, html, Icon, IconButton, route, titleOf, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./base.js";
import { KEPT } from "./conversation.js";
import { knownOf, Plain } from "./messages.js";
import { Messages } from "./sent.js";
import { useScroll } from "./session.js";

const WORDS = { session_created: "The session began", turn_started: "A turn began", message: "Something was said", message_started: "An answer began to come", message_ended: "A message was complete, or broke off", model_call_started: "A model was asked", model_call_ended: "The model had answered", tool_called: "A tool was called", tool_started: "A tool was started", tool_output: "What a tool had printed was kept", tool_result: "A tool gave its result", late_result: "A result came late", late_text: "The rest of an answer came late", stop_asked: "Stop was asked for", turn_ended: "The turn ended", compaction: "It was summarised for the model", rewind: "It was rewound", undone: "A change was undone", approval_asked: "A person was asked", approval_decided: "A person decided", settled: "An outcome was settled", prompt_queued: "A prompt was queued", prompt_taken: "A queued prompt was taken", renamed: "It was given a title", visibility: "A message was hidden or shown", limit_reached: "A limit was reached" };
const MARKS = { turn_ended: "ends", rewind: "folds", compaction: "folds", approval_asked: "asks", stop_asked: "asks" };
const LEGEND = { ends: "a turn ended", died: "it broke off", asks: "a question, a Stop", folds: "rewound, summarised" };

const quiet = { may: false, running: null, turns: new Map(), found: null, sought: 0, itemsOf: () => ({ items: [], whole: true }), onDecide: () => {} };

export function Machine({ id, session, head }) {
  const at = Math.min(Math.max(1, route.value.then), head);
  const [journal, setJournal] = useState(null);
  const [then, setThen] = useState(null);
  const [side, setSide] = useState("person");
  const [playing, setPlaying] = useState(false);
  const newest = useRef(0);
  useEffect(() => { attempt(async () => setJournal(await api.journal(id))); }, [id, head]);
  useEffect(() => {
    const mine = ++newest.current;
    const timer = setTimeout(() => attempt(async () => {
      const [transcript, context] = await Promise.all([api.transcript(id, { at, last: 500, text: KEPT }), side === "model" ? api.context(id, "openai-chat", at) : null]);
      if (mine === newest.current) setThen({ at, transcript, context });
    }), 60);
    return () => clearTimeout(timer);
  }, [id, at, side]);
  const to = (seq) => go(`${address(id)}?then=${Math.min(head, Math.max(1, seq))}`, { replace: true });
  useEffect(() => {
    if (!playing) return undefined;
    if (at >= head) { setPlaying(false); return undefined; }
    const timer = setTimeout(() => to(at + 1), 400);
    return () => clearTimeout(timer);
  }, [playing, at]);
  const broke = useMemo(() => new Set(journal?.broke_off), [journal]);
  const marks = useMemo(() => (journal?.kinds ?? []).map((kind, number) => [broke.has(number + 1) ? "died" : MARKS[kind], number + 1]).filter(([look]) => (head <= 5000 ? look : look === "died")).slice(-2000), [journal, head]);
  const looks = Object.keys(LEGEND).filter((look) => marks.some(([one]) => one === look));
  const items = then?.transcript.shown.map((one) => ({ ...one, key: one.seq, tools: one.tools.map((tool) => ({ ...tool, approval: null })), fresh: false })) ?? [];
  const ran = useMemo(() => (journal?.kinds ?? []).slice(0, at).filter((kind) => kind === "tool_started").length, [journal, at]);
  const { toEnd, area } = useScroll(id);
  useLayoutEffect(toEnd, [then]);
  const talk = { ...quiet, id, itemOf: (one) => ({ ...one, key: one.seq, tools: one.tools }), itemsOf: (turn) => ({ ...knownOf(items, turn, null), whole: true }), turns: new Map() };
  const words = broke.has(at) ? "The turn broke off" : WORDS[journal?.kinds[at - 1]] ?? journal?.kinds[at - 1] ?? "";
  const when = journal?.at_us[at - 1];
  return html`<header class="head"><${IconButton} name="left" label="Back to now" onClick=${() => go(address(id))} /><div class="title"><h1>${titleOf(session)}</h1><div class="meta"><span>as it was</span></div></div>
      <div class="chips" role="group" aria-label="Show">${[["person", "What a person saw"], ["model", "What the model would be sent"]].map(([name, label]) => html`<button type="button" class="chip" aria-pressed=${side === name} onClick=${() => setSide(name)}>${label}</button>`)}</div></header>
    <div class="machine">
      <div class="where"><output for="moment"><b>#${at.toLocaleString()}</b> of ${head.toLocaleString()}: ${words}${when ? html`, <time>${fullTime(when / 1000)}</time>` : ""}</output>
        <span>${ran ? `${ran.toLocaleString()} ${ran === 1 ? "tool" : "tools"} had been started` : "No tool had been started"}</span></div>
      <div class="scrub">
        <${IconButton} name="left" label="One entry back" disabled=${at <= 1} onClick=${() => to(at - 1)} />
        <span class="rail"><input id="moment" type="range" min="1" max=${head} value=${at} aria-label="Moment" aria-valuetext=${`entry ${at} of ${head}: ${words}`} onInput=${(event) => to(Number(event.target.value))} />
          <svg class="marks" viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">${marks.map(([look, seq]) => html`<rect class=${look} x=${head > 1 ? (1000 * (seq - 1)) / (head - 1) - 1.5 : 0} y="0" width="3" height="8" />`)}</svg></span>
        <${IconButton} name="right" label="One entry on" disabled=${at >= head} onClick=${() => to(at + 1)} />
        <button type="button" class="button small" aria-pressed=${playing} onClick=${() => { if (at >= head) to(1); setPlaying(!playing); }}>${playing ? "Pause" : "Play"}</button>
      </div>
      ${looks.length > 0 && html`<p class="legend">${looks.map((look) => html`<span><i class=${look}></i>${LEGEND[look]}</span>`)}</p>`}
    </div>
    <div class="scroll" ...${area} tabindex="0" role="region" aria-label="Conversation at that moment"><div class="talk">
      ${side === "person" ? html`${then && !items.length && html`<p class="empty">Nothing was to be seen yet.</p>`}${items.map((one) => html`<${Plain} key=${`${one.kind}${one.seq}`} item=${one} talk=${talk} />`)}`
        : html`${then?.context?.repairs.map((one) => html`<p class="repair">#${one.seq}: ${one.action}. ${one.reason}</p>`)}${then?.context && html`<${Messages} messages=${then.context.messages.map((body) => ({ body }))} repaired=${then.context.repairs.length > 0} />`}${then?.context && !then.context.messages.length && html`<p class="empty">Nothing would have been sent yet.</p>`}`}
    </div></div>
    <div class="below"><div><button type="button" class="button" onClick=${() => attempt(async () => { const made = await api.fork(id, at); go(address(made.id)); })}><${Icon} name="fork" />Fork from this moment</button></div></div>`;
}
