// What was said and done, as a person sees it.

import { api } from "./api.js";
import { attempt, clip, clockTime, Fragment, fullTime, html, Icon, IconButton, lasting, Later, money, shortCount, signal, useEffect, useMemo, useRef, useState } from "./base.js";
import { brief, KEPT, MANY, quiet, textOf } from "./conversation.js";

const tools = () => import("./tools.js");

// -- parts of a message -----------------------------------------------------------------------------

// Over a slow line the words come first, and their Markdown is rendered a moment later.
const render = signal(null);
import("./markdown.js").then((module) => { render.value = module.render; });

export function Prose({ text, live }) {
  const made = useMemo(() => render.value?.(text), [text, render.value]);
  if (made === undefined) return html`<div class=${`prose raw ${live ? "caret" : ""}`}>${text}</div>`;
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
  return url ? html`<img class="picture" src=${url} alt=${part.alt ?? "An image"} />` : html`<span class="waiting"><i></i><i></i><i></i></span>`;
}

export function save(data, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(data), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function FilePart({ part }) {
  const name = part.name ?? "file";
  return html`<button type="button" class="button small file" title=${part.media_type} onClick=${() => attempt(async () => save(await api.blob(part.blob), name))}><${Icon} name="down" />${name}</button>`;
}

export function Part({ part, live, plain }) {
  if (part.type === "text") return plain ? html`<div class="words">${part.text}</div>` : html`<${Prose} text=${part.text} live=${live} />`;
  if (part.type === "reasoning") return part.text ? html`<${Reasoning} text=${part.text} live=${live} />` : null;
  if (part.type === "image") return html`<${Picture} part=${part} />`;
  if (part.type === "file") return html`<${FilePart} part=${part} />`;
  return null;
}

export function Run({ tools, count, children }) {
  const [open, setOpen] = useState(false);
  return html`<details class="fold run" open=${open} onToggle=${(event) => { if (event.target === event.currentTarget) setOpen(event.currentTarget.open); }}>
    <summary><code>${tools[0].name}</code><span class="brief">${count} calls: ${tools.slice(0, 3).map((one) => brief(one.arguments)).join(", ")} …</span><span class="state finished">all done</span></summary>
    ${open && html`<div>${children()}</div>`}
  </details>`;
}

// -- messages ---------------------------------------------------------------------------------------

function Acts({ item, talk, text }) {
  return html`<div class="act" role="group" aria-label="For this message">
    <${IconButton} name="copy" label="Copy" onClick=${() => clip(text)} />
    ${talk.may && html`<${IconButton} name="fork" label="Fork from here" onClick=${() => talk.onFork(item.seq)} />
      <${IconButton} name="undo" label="Rewind to here" onClick=${() => talk.onRewind(item)} />`}
  </div>`;
}

function Message({ item, talk, old }) {
  const text = textOf(item.parts);
  const streaming = item.state === "streaming";
  const look = `${talk.found === item.seq ? "found" : ""} ${old ? "old" : ""}`;
  if (item.role === "user") {
    return html`<article class=${`message user ${look}`} id=${`m${item.seq}`} aria-label="You">${item.parts.map((part, number) => html`<${Part} key=${number} part=${part} plain />`)}<${Acts} item=${item} talk=${talk} text=${text} /></article>`;
  }
  const empty = !item.parts.some((one) => one.type !== "opaque") && !item.tools.length;
  return html`<article class=${`message ${item.role} ${look}`} id=${`m${item.seq}`} data-state=${item.state} aria-label=${item.role === "assistant" ? "Answer" : item.role} aria-busy=${streaming}>
    ${item.role === "system" && html`<div class="role">System</div>`}
    ${item.parts.map((part, number) => html`<${Part} key=${number} part=${part} live=${streaming && number === item.parts.length - 1 && !item.tools.length} />`)}
    ${item.tools.length > 0 && html`<${Later} from=${tools} name="Tools" message=${item} over=${talk.running !== item.turn_id} talk=${talk} />`}
    ${streaming && empty && html`<span class="waiting" role="status"><span class="away">The answer is coming</span><i></i><i></i><i></i></span>`}
    ${item.state === "partial" && html`<div class="cut">cut off here</div>`}
    ${!streaming && text && html`<${Acts} item=${item} talk=${talk} text=${text} />`}
  </article>`;
}

// When a turn ran, how long, and what it took, as far as the journal has it.
export function TurnLine({ turn }) {
  if (!turn?.ended_at) return null;
  const { usage } = turn;
  const said = [lasting(new Date(turn.ended_at) - new Date(turn.started_at))];
  if (usage) said.push(`${shortCount(usage.input ?? 0)} tokens in, ${shortCount(usage.output ?? 0)} out`);
  if (usage?.cost) said.push(money(usage.cost));
  return html`<p class="turn-line"><time datetime=${turn.started_at} title=${fullTime(turn.started_at)}>${clockTime(turn.started_at)}</time>${said.map((one) => html`<span>${one}</span>`)}</p>`;
}

// -- after an interruption: what is still there, what is not known, and how to go on --------------------

const many = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;

// What became of a turn, from the things of it that are in view.
export function survivors(items) {
  const prompts = items.filter((one) => one.role === "user");
  const answers = items.filter((one) => one.role === "assistant");
  const tools = answers.flatMap((one) => one.tools.map((tool) => ({ ...tool, message: one })));
  const of = (...states) => tools.filter((tool) => states.includes(tool.denied ? "denied" : tool.state));
  return {
    prompt: prompts.length > 0,
    chars: answers.reduce((sum, one) => sum + textOf(one.parts).length, 0),
    cut: answers.some((one) => one.state === "partial"),
    finished: of("finished", "failed"),
    unknown: of("unknown").filter((tool) => !tool.settled),
    settled: of("unknown").filter((tool) => tool.settled),
    never: of("not started", "cut off"),
    denied: of("denied"),
    waits: tools.filter((tool) => tool.approval && !tool.result),
  };
}

function Unknown({ tool, talk, onSettled }) {
  const [busy, setBusy] = useState(false);
  const settle = (outcome) => attempt(async () => {
    setBusy(true);
    try { await api.settle(talk.id, { turn_id: tool.message.turn_id, call_id: tool.call_id, outcome }); onSettled(); } finally { setBusy(false); }
  });
  return html`<li class="doubt"><span><code>${tool.name}</code> <span class="brief">${brief(tool.arguments)}</span></span>
    <small>It was started and no result came. Look at what it would have changed, then say what you found.</small>
    ${talk.may && html`<span class="push"><button type="button" class="button small" disabled=${busy} onClick=${() => settle("ran")}>It ran</button><button type="button" class="button small" disabled=${busy} onClick=${() => settle("did_not_run")}>It did not run</button></span>`}
  </li>`;
}

// The things of a turn in a list, and whether the list goes back to the turn's beginning.
export function knownOf(list, turn_id, turn) {
  const items = list.filter((one) => one.turn_id === turn_id && one.kind === "message");
  return { items, whole: items.some((one) => one.role === "user") || Boolean(turn && list.length && list[0].seq <= turn.seq) };
}

const flat = (shown) => shown.flatMap((one) => [one, ...flat(one.folded ?? [])]);

// A card counts all of its turn: what of it is not in view, or lies in a fold, is read for it.
function useWhole(item, talk) {
  const here = talk.itemsOf(item.turn_id);
  const [read, setRead] = useState(null);
  useEffect(() => {
    if (here.whole || read) return;
    attempt(async () => {
      const since = talk.turns.get(item.turn_id)?.seq;
      const of = async (page) => flat((await api.transcript(talk.id, { ...page, text: 1 })).shown).filter((one) => one.turn_id === item.turn_id && one.kind === "message");
      const near = since ? await of({ since }) : [];
      setRead((near.length ? near : await of({})).map((one) => talk.itemOf(one)));
    });
  }, [here.whole, read]);
  return { items: here.whole ? here.items : read, again: () => setRead(null) };
}

export function Survived({ item, talk, last }) {
  const { items, again } = useWhole(item, talk);
  const kept = items && survivors(items);
  const acts = last && !talk.running && talk.may;
  return html`<section class=${`ending survived ${item.status}`} id=${`m${item.seq}`} aria-label="What survived">
    <header><span class="why"><b>${item.status === "failed" ? "Failed." : "Interrupted."}</b> ${item.words ?? ""}</span>
      <time datetime=${item.at} title=${fullTime(item.at)}>${clockTime(item.at)}</time></header>
    ${kept && html`<ul class="kept">
      ${kept.prompt && html`<li class="good">prompt kept</li>`}
      <li class=${kept.chars ? "good" : ""}>${kept.chars ? `${many(kept.chars, "character")} of the answer kept` : "no answer had come"}</li>
      ${kept.finished.length > 0 && html`<li class="good">${many(kept.finished.length, "tool")} finished</li>`}
      ${kept.settled.map((tool) => html`<li class="good"><code>${tool.name}</code> ${tool.settled.outcome === "did_not_run" ? "did not run" : "ran"}, as a ${tool.settled.by} found out</li>`)}
      ${kept.unknown.length > 0 && html`<li class="warn">${many(kept.unknown.length, "outcome")} unknown</li>`}
      ${kept.never.length > 0 && html`<li>${many(kept.never.length, "tool")} never ran</li>`}
      ${kept.denied.length > 0 && html`<li>${kept.denied.length} denied</li>`}
      ${kept.waits.length > 0 && html`<li class="warn">${kept.waits.length} ${kept.waits.length === 1 ? "waits" : "wait"} for you</li>`}
    </ul>
    ${kept.unknown.length > 0 && html`<ul class="doubts">${kept.unknown.map((tool) => html`<${Unknown} key=${tool.call_id} tool=${tool} talk=${talk} onSettled=${again} />`)}</ul>`}`}
    ${acts && html`<div class="push">
      <button type="button" class="button small primary" onClick=${() => talk.onContinue(item.turn_id)}>Continue</button>
      <button type="button" class="button small" onClick=${() => talk.onAgain(item.turn_id)}>Answer again</button>
    </div>`}
  </section>`;
}

// -- folds ------------------------------------------------------------------------------------------

function Compaction({ item, talk }) {
  const [seen, setSeen] = useState(false);
  const [inside, setInside] = useState(item.folded.length ? item.folded : null);
  const holds = talk.found && talk.sought >= item.seq && talk.found === `f${item.seq}`;
  const load = async (since) => {
    const page = await attempt(() => api.transcript(talk.id, { inside: item.seq, last: 100, text: KEPT, since }));
    if (page) setInside({ shown: page.shown.map((one) => talk.itemOf(one)), before: page.before, earlier: page.earlier });
  };
  const earlier = async () => {
    const page = await attempt(() => api.transcript(talk.id, { inside: item.seq, last: 100, text: KEPT, before: inside.before }));
    if (page) setInside({ shown: [...page.shown.map((one) => talk.itemOf(one)), ...inside.shown], before: page.before, earlier: page.earlier });
  };
  useEffect(() => { if (holds) { setSeen(true); load(talk.sought); } }, [holds]);
  const list = Array.isArray(inside) ? inside : inside?.shown;
  // What was searched for lies in here: it is brought into sight once it is there.
  const sought = holds && list ? list.findLast((one) => one.seq <= talk.sought) : null;
  useEffect(() => { if (sought) document.getElementById(`m${sought.seq}`)?.scrollIntoView({ block: "center" }); }, [sought?.seq]);
  const there = { ...talk, found: sought ? (sought.kind === "compaction" ? `f${sought.seq}` : sought.seq) : null, itemsOf: (turn) => knownOf(list ?? [], turn, talk.turns.get(turn)) };
  const count = item.folds || item.folded.length;
  return html`<details class="fold compaction" id=${`mf${item.seq}`} open=${seen} onToggle=${(event) => { if (event.target !== event.currentTarget) return; setSeen(event.currentTarget.open); if (event.currentTarget.open && !inside) load(); }}>
    <summary><${Icon} name="fold" />${count} earlier ${count === 1 ? "thing is" : "things are"} summarised for the model</summary>
    <div>${seen && html`<${Prose} text=${textOf(item.parts)} />${list && html`<div class="folded">
      ${inside.before && html`<button type="button" class="button small more" onClick=${earlier}>Show earlier, of ${inside.earlier}</button>`}
      ${list.map((one) => html`<${Plain} key=${one.key} item=${one} talk=${there} />`)}</div>`}`}</div>
  </details>`;
}

export function Plain({ item, talk, last, old }) {
  if (item.kind === "compaction") return html`<${Compaction} item=${item} talk=${talk} />`;
  if (item.kind === "ending") return html`<${Survived} item=${item} talk=${talk} last=${last} />`;
  return html`<${Message} item=${item} talk=${talk} old=${old} />`;
}

// Reads its own signal, so that a delta paints one message and not the conversation.
function Held({ held, talk, last, old }) {
  return html`<${Plain} item=${held.shown.value} talk=${talk} last=${last} old=${old} />`;
}

// -- answers that were asked for again --------------------------------------------------------------

const picked = signal({});

function earlierAnswers(turn, talk, inView) {
  const chain = [];
  for (let before = turn?.retry_of && talk.turns.get(turn.retry_of); before; before = before.retry_of && talk.turns.get(before.retry_of)) {
    if (!inView.has(before.id)) chain.unshift(before);
  }
  return chain;
}

function Answers({ turn, chain, talk }) {
  const count = chain.length + 1;
  const at = picked.value[turn.id] ?? count - 1;
  const [shown, setShown] = useState(null);
  const chosen = chain[at];
  useEffect(() => {
    setShown(null);
    if (chosen) attempt(async () => setShown((await api.transcript(talk.id, { at: chosen.ended_seq ?? chosen.seq, last: 200, text: KEPT })).shown.filter((one) => one.turn_id === chosen.id).map((one) => talk.itemOf(one))));
  }, [chosen?.id]);
  const pick = (to) => { picked.value = { ...picked.value, [turn.id]: to }; };
  return html`<div class="answers" role="group" aria-label="Answers to this prompt">
    <${IconButton} name="left" label="The answer before" disabled=${at === 0} onClick=${() => pick(at - 1)} />
    <span role="status">${at + 1} of ${count}</span>
    <${IconButton} name="right" label="The answer after" disabled=${at === count - 1} onClick=${() => pick(at + 1)} />
    ${chosen && talk.may && html`<button type="button" class="button small" onClick=${() => talk.onFork(chosen.ended_seq)}>Fork with this answer</button>`}
  </div>
  ${chosen && shown?.filter((one) => one.role !== "user").map((one) => html`<div class="before" key=${one.key}><${Plain} item=${one} talk=${{ ...talk, may: false, itemsOf: (turn) => ({ ...knownOf(shown, turn, null), whole: true }) }} /></div>`)}
  ${chosen && html`<${TurnLine} turn=${chosen} />`}`;
}

// -- the list -------------------------------------------------------------------------------------

// Messages that only call the same tool, one after the other, and all went well.
function onlyCalls(item) {
  return item.kind === "message" && item.role === "assistant" && item.state === "complete" && item.tools.length > 0 && !item.parts.some((part) => part.type !== "opaque" && (part.text ?? "x").trim()) && item.tools.every((tool) => quiet(tool) && tool.name === item.tools[0].name);
}

function gathered(items) {
  const rows = [];
  for (const held of items) {
    const last = rows.at(-1);
    const item = held.now;
    if (last?.run && last.turn === item.turn_id && onlyCalls(item) && item.tools[0].name === last.run) last.held.push(held);
    else rows.push({ held: [held], run: onlyCalls(item) ? item.tools[0].name : null, turn: item.turn_id });
  }
  return rows.flatMap((row) => (row.held.length >= MANY ? [row] : row.held.map((held) => ({ held: [held], run: null, turn: held.now.turn_id }))));
}

function Row({ row, talk, last, old }) {
  const [held] = row.held;
  if (row.held.length === 1) return html`<${Held} held=${held} talk=${talk} last=${last} old=${old} />`;
  const tools = row.held.flatMap((one) => one.shown.value.tools);
  return html`<${Run} tools=${tools} count=${tools.length}>${() => row.held.map((one) => html`<${Held} key=${one.now.key} held=${one} talk=${talk} />`)}<//>`;
}

const NEWEST = 30;

export function Messages({ items, talk, earlier, onMore }) {
  const top = useRef(null);
  useEffect(() => {
    if (!earlier || !top.current) return undefined;
    const watch = new IntersectionObserver(([seen]) => { if (seen.isIntersecting) onMore(); }, { root: top.current.closest(".scroll"), rootMargin: "400px 0px" });
    watch.observe(top.current);
    return () => watch.disconnect();
  }, [earlier]);
  const inView = new Set(items.filter((held) => held.now.role !== "user").map((held) => held.now.turn_id));
  const rows = gathered(items);
  return html`
    ${earlier > 0 && html`<button type="button" ref=${top} class="button small more" onClick=${onMore}>Show earlier, of ${earlier}</button>`}
    ${rows.map((row, number) => {
      const [held] = row.held;
      const turn = row.turn && talk.turns.get(row.turn);
      const begins = turn && rows[number - 1]?.turn !== row.turn;
      const ends = turn && rows[number + 1]?.turn !== row.turn && turn.status !== "running" && talk.running !== turn.id && held.now.role !== "user";
      const chain = turn?.retry_of ? earlierAnswers(turn, talk, inView) : [];
      const away = chain.length > 0 && (picked.value[turn.id] ?? chain.length) < chain.length && held.now.role !== "user";
      const first = chain.length > 0 && held.now.role !== "user" && (begins || rows[number - 1]?.held[0].now.role === "user");
      return html`<${Fragment} key=${held.now.key}>${first && html`<${Answers} turn=${turn} chain=${chain} talk=${talk} />`}
        ${!away && html`<${Row} row=${row} talk=${talk} last=${number === rows.length - 1} old=${number < rows.length - NEWEST} />`}
        ${!away && ends && html`<${TurnLine} turn=${turn} />`}<//>`;
    })}`;
}
