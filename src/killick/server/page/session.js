// One conversation: its head, what was said, and the place to say more.

import { api, reachable } from "./api.js";
import { address, attempt, fullTime, go, html, Icon, IconButton, Later, newKey, route, signal, titleOf, toast, useEffect, useLayoutEffect, useRef, useState } from "./base.js";
import { Conversation, brief } from "./conversation.js";
import { knownOf, Messages, save } from "./messages.js";
import { look } from "./needs.js";
import { reload, sideOpen } from "./sessions.js";

// What was typed and not sent yet: a reload does not lose it.
export const drafts = {
  get: (id) => sessionStorage.getItem(`killick-draft-${id}`) ?? "",
  set: (id, text) => (text ? sessionStorage.setItem(`killick-draft-${id}`, text) : sessionStorage.removeItem(`killick-draft-${id}`)),
};
export const panel = signal(null);
const machine = () => import("./machine.js");
const beside = () => import("./beside.js");
const PANELS = { sent: ["What the model is sent", () => import("./sent.js"), "Sent"], waterfall: ["When it happened", () => import("./waterfall.js"), "Waterfall"] };
export const may = signal("write");
export const model = signal(null);
export const lacks = signal(null);
const refused = signal(0);

export const Lost = ({ when }) => (when || !reachable.value) && html`<div class="offline" role="status">The connection is lost. What is answered is kept; this page comes back by itself.</div>`;

function Title({ session, onRename }) {
  const [editing, setEditing] = useState(false);
  const field = useRef(null);
  useEffect(() => { field.current?.select(); }, [editing]);
  if (!editing) return html`<button type="button" title="Rename" onClick=${() => may.value === "write" && setEditing(true)}>${titleOf(session)}</button>`;
  const save = () => { setEditing(false); const name = field.current?.value.trim(); if (name && name !== session.title) onRename(name); };
  return html`<input ref=${field} aria-label="Title" maxlength="200" value=${session.title ?? ""} onBlur=${save} onKeyDown=${(event) => { if (event.key === "Enter") event.target.blur(); if (event.key === "Escape") { event.preventDefault(); event.target.value = session.title ?? ""; setEditing(false); } }} />`;
}

function Menu({ conversation, session }) {
  const [open, setOpen] = useState(false);
  const [allowed, setAllowed] = useState([]);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    attempt(async () => setAllowed((await api.allowed(conversation.id)).allowed));
    const away = (event) => { if (!box.current.contains(event.target)) setOpen(false); };
    document.addEventListener("pointerdown", away);
    box.current.querySelector("[role=menuitem]")?.focus();
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const key = (event) => {
    const items = [...box.current.querySelectorAll("[role=menuitem]")];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (open && to !== undefined) { event.preventDefault(); items.at(to % items.length).focus(); }
    if (open && event.key === "Escape") { event.preventDefault(); setOpen(false); box.current.querySelector("button").focus(); }
    if (event.key === "Tab") setOpen(false);
  };
  const id = conversation.id;
  const act = (work) => () => { setOpen(false); attempt(work); };
  const write = (to) => act(async () => { const { name, data } = await api.file(id, to); save(data, name); });
  const beside = session.fork && `${address(id)}?beside=${encodeURIComponent(session.fork.session_id)}`;
  return html`<div class="menu" ref=${box} onKeyDown=${key}>
    <${IconButton} name="dots" label="More" aria-expanded=${open} aria-haspopup="menu" onClick=${() => setOpen(!open)} />
    ${open && html`<div role="menu" aria-label="For this session">
      ${may.value === "write" && html`
        <button role="menuitem" onClick=${act(async () => { const made = await api.fork(id); go(address(made.id)); await reload(); })}><${Icon} name="fork" />Fork</button>
        <button role="menuitem" onClick=${act(async () => { await api.compact(id); toast("What was said is summarised for the model", { action: "Undo", onAction: () => attempt(() => api.undo(id)) }); })}><${Icon} name="fold" />Compact</button>
        <button role="menuitem" onClick=${act(async () => { await api.change(id, { archived: !session.archived }); await reload(); toast(session.archived ? "It is back" : "It is put away"); })}><${Icon} name="box" />${session.archived ? "Bring back" : "Archive"}</button>
        <hr />`}
      <button role="menuitem" onClick=${act(async () => go(`${address(id)}?then=${conversation.detail.value.head}`))}><${Icon} name="clock" />Look back in time</button>
      ${beside && html`<button role="menuitem" onClick=${act(async () => go(beside))}><${Icon} name="columns" />Beside what it was forked from</button>`}
      ${may.value === "write" && allowed.length > 0 && html`<hr /><small role="presentation">Runs here unasked</small>
        ${allowed.map((one) => html`<button role="menuitem" key=${one.tool + one.arguments_hash} onClick=${act(async () => { await api.askAgain(id, one); toast("You will be asked again"); })}><${Icon} name="undo" /><span class="short">Ask again: ${one.tool} ${brief(one.arguments)}</span></button>`)}`}
      <hr />
      <small role="presentation">Export</small>
      <button role="menuitem" onClick=${write("markdown")}><${Icon} name="down" />Markdown</button>
      <button role="menuitem" onClick=${write("html")}><${Icon} name="down" />One page of HTML</button>
      <button role="menuitem" onClick=${write("killick")}><${Icon} name="down" />Everything, as JSON lines</button>
      ${may.value === "write" && html`<hr /><button role="menuitem" class="danger" onClick=${act(async () => {
        await api.remove(id);
        go("/");
        await reload();
        toast("The session is deleted", { action: "Undo", onAction: () => attempt(async () => { await api.restore(id); await reload(); go(address(id)); }), ms: 10000 });
      })}><${Icon} name="trash" />Delete</button>`}
    </div>`}
  </div>`;
}

// Prompts that wait. While it answers they are asked next; after a stop or a crash, when somebody says so.
function Queue({ queued, running, onSend, onRemove }) {
  return html`<section class="queue" aria-label="Waiting prompts">
    <header><span role="status">${running ? "Asked when this answer is complete" : queued.length > 1 ? "These were not asked yet" : "This was not asked yet"}</span>
      ${!running && html`<button type="button" class="button small" onClick=${onSend}>Send now</button>`}</header>
    <ul>${queued.map((one) => html`<li key=${one.id}><span>${one.text}${running && one.steers === running ? html` <small>told at its next step</small>` : ""}</span><${IconButton} name="close" label=${`Remove: ${one.text.slice(0, 60)}`} onClick=${() => onRemove(one)} /></li>`)}</ul>
  </section>`;
}

function Composer({ id, running, queued, onAsk, onSteer, onStop, onQueued, onRemove }) {
  const box = useRef(null);
  const [text, setText] = useState(drafts.get(id));
  useEffect(() => { if (matchMedia("(min-width: 821px)").matches) box.current?.focus(); }, []);
  const type = (value) => { setText(value); drafts.set(id, value); };
  const send = async (give = onAsk) => {
    const words = text.trim();
    if (!words) return;
    type("");
    if (!(await give(words))) type([text, drafts.get(id)].filter(Boolean).join("\n"));
  };
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(running && onSteer && (event.ctrlKey || event.metaKey) ? onSteer : onAsk); }
    if (event.key === "Escape" && running) { event.preventDefault(); onStop(); }
  };
  return html`<div class="below"><div>
    ${queued.length > 0 && html`<${Queue} queued=${queued} running=${running} onSend=${onQueued} onRemove=${onRemove} />`}
    ${lacks.value && html`<p class="lacks" key=${refused.value} role=${refused.value ? "alert" : "note"}>${lacks.value}</p>`}
    <div class="composer">
      <label class="away" for="prompt">Your message</label>
      <textarea id="prompt" ref=${box} rows="1" placeholder=${running ? "Say what comes next; it waits" : "Ask something"} value=${text} onInput=${(event) => type(event.target.value)} onKeyDown=${key}></textarea>
      ${running && html`<button type="button" class="button stop" onClick=${onStop}><i aria-hidden="true"></i>Stop</button>`}
      ${running && onSteer && text.trim() && html`<button type="button" class="button" title="Tell the answer that runs, before its next step (Ctrl Enter)" onClick=${() => send(onSteer)}>Tell it now</button>`}
      ${(!running || text.trim()) && html`<button type="button" class="button primary" disabled=${!text.trim()} onClick=${() => send()}>${running ? "Queue" : "Send"}</button>`}
    </div>
    <div class="hint"><span><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> is a new line${running ? html`, <kbd>Esc</kbd> stops` : ""}</span><span>${model.value ?? ""}</span></div>
  </div></div>`;
}

// Stays at the end while it is at the end; who has scrolled up keeps the place when more is put in above it.
export function useScroll(conversation) {
  const box = useRef(null);
  const [away, setAway] = useState(false);
  const pinned = useRef(true);
  const held = useRef(null);
  const was = useRef({ top: 0, height: 0 });
  const hold = () => {
    const { left, top, width, height } = box.current.getBoundingClientRect();
    let seen = null;
    for (let down = 4; !seen && down < height; down += 24) seen = document.elementFromPoint(left + width / 2, top + down)?.closest(".talk [id^=m]");
    held.current = seen ? { seen, top: seen.getBoundingClientRect().top } : null;
  };
  const keep = () => {
    const at = held.current;
    if (pinned.current) box.current.scrollTop = box.current.scrollHeight;
    else if (at?.seen.isConnected) box.current.scrollTop += at.seen.getBoundingClientRect().top - at.top;
  };
  const toEnd = () => { pinned.current = true; setAway(false); if (box.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(() => {
    // Heights above the place are guesses until they are drawn.
    const watch = new ResizeObserver(() => { if (box.current) keep(); });
    if (box.current) { watch.observe(box.current); watch.observe(box.current.firstElementChild); }
    return () => watch.disconnect();
  }, [conversation]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    // What became taller has not been scrolled by a person.
    const grew = pinned.current && scrollHeight > was.current.height && scrollTop >= was.current.top;
    was.current = { top: scrollTop, height: scrollHeight };
    if (grew) { keep(); return; }
    pinned.current = scrollHeight - scrollTop - clientHeight < 60;
    setAway(!pinned.current);
    hold();
  };
  return { away, toEnd, pinned, keep, area: { ref: box, onScroll } };
}

function Head({ conversation, session }) {
  const origin = session.fork && address(session.fork.session_id);
  const parent = session.parent && address(session.parent.session_id);
  const writes = may.value === "write";
  const toggle = (name) => () => { panel.value = panel.value === name ? null : name; };
  return html`<header class="head">
    <${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} />
    <div class="title"><h1 class="away">${titleOf(session)}</h1>
      <${Title} session=${session} onRename=${(title) => attempt(async () => { await api.change(conversation.id, { title }); await reload(); })} />
      <div class="meta"><span title=${fullTime(session.created_at)}>${fullTime(session.created_at)}</span>${session.models.length > 0 && html`<span>${session.models.join(", ")}</span>`}${origin && html`<a href=${origin} onClick=${(event) => { event.preventDefault(); go(origin); }}>forked at #${session.fork.at}</a>`}${parent && html`<a href=${parent} onClick=${(event) => { event.preventDefault(); go(parent); }}>subagent of another session</a>`}${session.project?.cwd && html`<span>${session.project.cwd}</span>`}</div>
    </div>
    ${writes && html`<${IconButton} name="pin" label=${session.pinned ? "Unpin" : "Pin"} aria-pressed=${session.pinned} onClick=${() => attempt(async () => { await api.change(conversation.id, { pinned: !session.pinned }); await reload(); })} />`}
    <${IconButton} name="bars" label="When it happened" aria-pressed=${panel.value === "waterfall"} onClick=${toggle("waterfall")} />
    <${IconButton} name="eye" label="What the model is sent" aria-pressed=${panel.value === "sent"} onClick=${toggle("sent")} />
    <${Menu} conversation=${conversation} session=${session} />
  </header>`;
}

// The thing in which a place of the journal is; what a search has found may be a tool's result, or lie in a fold.
function nearest(items, seq) {
  return seq ? items.findLast((held) => held.now.seq <= seq)?.now.key ?? null : null;
}

// A prompt that is taken back goes before what was typed meanwhile; undoing takes it out again.
const back = {
  take: (id, prompt) => { const draft = drafts.get(id); sessionStorage.setItem(`killick-back-${id}`, prompt); drafts.set(id, draft ? `${prompt}\n\n${draft}` : prompt); },
  undo: (id) => {
    const prompt = sessionStorage.getItem(`killick-back-${id}`);
    const draft = drafts.get(id);
    sessionStorage.removeItem(`killick-back-${id}`);
    if (prompt && (draft === prompt || draft.startsWith(`${prompt}\n\n`))) drafts.set(id, draft.slice(prompt.length).replace(/^\n\n/, ""));
  },
};

function actions(conversation, toEnd) {
  const id = conversation.id;
  return {
    running: conversation.running.value,
    may: may.value === "write",
    id,
    found: nearest(conversation.items.value, route.value.seq),
    sought: route.value.seq,
    turns: conversation.turns.value,
    itemOf: (shown) => conversation.itemOf(shown),
    itemsOf: (turn) => knownOf(conversation.items.value.map((held) => held.shown.value), turn, conversation.turns.value.get(turn)),
    onFork: (at) => attempt(async () => { const made = await api.fork(id, at); go(address(made.id)); await reload(); toast("This is a fork; the other is as it was"); }),
    onRewind: (item) => attempt(async () => {
      const through = item.role === "user" ? item.seq - 1 : item.seq;
      const { seq } = await api.rewind(id, through);
      if (item.role === "user") { back.take(id, item.parts.map((one) => one.text ?? "").join("")); conversation.redraft.value = seq; }
    }),
    onContinue: (turn) => attempt(async () => { toEnd(); await conversation.ask({ prompt: null, continues: turn }, newKey()); }),
    onAgain: (turn) => attempt(async () => { toEnd(); await conversation.again(turn); }),
    onDecide: (tool, approved, always) => attempt(async () => {
      // Asked before: a turn that waits may be over by the time the decision is answered.
      const over = !conversation.running.value;
      await api.decide(id, tool.approval, approved, always);
      look();
      if (over) await conversation.ask({ prompt: null, continues: tool.approval.turn_id });
    }),
  };
}

function Open({ conversation }) {
  const { away, toEnd, pinned, keep, area } = useScroll(conversation);
  const detail = conversation.detail.value;
  const items = conversation.items.value;
  const running = conversation.running.value;
  const talk = actions(conversation, toEnd);
  const sending = useRef(null);
  useEffect(() => {
    const target = talk.found && document.getElementById(`m${talk.found}`);
    if (target) { pinned.current = false; target.scrollIntoView({ block: "center" }); }
  }, [talk.found]);
  useEffect(() => { if (route.value.seq) attempt(() => conversation.reach(route.value.seq)); }, [route.value.seq]);
  const onMore = () => attempt(() => conversation.more());
  useLayoutEffect(keep, [items]);
  const give = (sends) => async (prompt) => {
    toEnd();
    if (route.value.seq) go(address(conversation.id), { replace: true });
    // The same words after a failure are the same prompt: it may have arrived all the same.
    if (sending.current?.prompt !== prompt) sending.current = { prompt, key: newKey() };
    return attempt(async () => {
      // Nobody answers here: it is said above the field, in so many words, and need not be said twice.
      if (lacks.value) { refused.value += 1; return false; }
      await sends(prompt, sending.current.key);
      sending.current = null;
      reload();
      return true;
    });
  };
  const onAsk = give((prompt, key) => conversation.ask({ prompt, if_busy: "queue" }, key));
  const onSteer = give((prompt, key) => api.steer(conversation.id, prompt, key));
  const waits = running && !items.some((held) => held.now.state === "streaming" || held.now.tools.some((tool) => tool.state === "running" || tool.approval));
  return html`<${Head} conversation=${conversation} session=${detail.session} />
    <${Lost} when=${conversation.connection.value === "lost"} />
    <div class="scroll" ...${area} tabindex="0" role="region" aria-label="Conversation"><div class="talk">
      ${!items.length && !running && html`<p class="empty">Nothing was said yet.</p>`}
      <${Messages} items=${items} talk=${talk} earlier=${conversation.earlier.value} onMore=${onMore} />
      ${waits && html`<span class="waiting" role="status"><span class="away">The answer is coming</span><i></i><i></i><i></i></span>`}
      ${conversation.undoable.value !== null && !running && talk.may && html`<div class="ending" role="note"><span class="why">What came after is out of view.</span><span class="push"><button type="button" class="button small" onClick=${() => attempt(async () => { await api.undo(conversation.id); back.undo(conversation.id); conversation.redraft.value += 1; })}>Undo</button></span></div>`}
    </div></div>
    ${away && html`<button type="button" class="button small jump" onClick=${toEnd}><${Icon} name="down" />To the end</button>`}
    ${may.value === "write" && html`<${Composer} key=${`${conversation.id}/${conversation.redraft.value}`} id=${conversation.id} running=${running} queued=${conversation.queued.value} onAsk=${onAsk} onSteer=${onSteer} onStop=${() => attempt(() => conversation.stop())} onQueued=${() => attempt(async () => { toEnd(); await conversation.ask({ prompt: null }, newKey()); })} onRemove=${(one) => attempt(() => api.withdraw(conversation.id, one.id))} />`}
    <div class="away" role="status" aria-live="polite">${running ? "Answering" : "Ready"}</div>`;
}

// A page that says one thing only.
export function Notice({ title, children }) {
  return html`<main class="main" id="main" tabindex="-1">
    <header class="head only-small-head"><${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} /></header><${Lost} />
    <div class="welcome"><h1>${title}</h1><p>${children}</p><button type="button" class="button" onClick=${() => go("/")}>To the start</button></div></main>`;
}

function Failed({ error }) {
  if (error.status === 404) return html`<${Notice} title="There is nothing here">No session of this server has this address. It may have been erased, or the link to it may be mistyped.<//>`;
  if (error.status === 0) return html`<${Notice} title="The server does not answer">The session is shown as soon as it does.<//>`;
  return html`<${Notice} title="It cannot be shown">${error.message}<//>`;
}

export function SessionView({ id }) {
  const [conversation, setConversation] = useState(null);
  useEffect(() => {
    const made = new Conversation(id, reload, route.value.seq);
    made.redraft = signal(0);
    setConversation(made);
    return () => made.close();
  }, [id]);
  const ours = conversation?.id === id ? conversation : null;
  const detail = ours?.detail.value;
  useEffect(() => { document.title = detail ? `${titleOf(detail.session)} · Killick` : "Killick"; }, [detail]);
  if (ours?.failed.value) return html`<${Failed} error=${ours.failed.value} />`;
  if (detail && route.value.then) return html`<main class="main" id="main" tabindex="-1"><${Later} key="machine" from=${machine} name="Machine" id=${id} session=${detail.session} head=${detail.head} /></main>`;
  if (detail && route.value.beside) return html`<main class="main" id="main" tabindex="-1"><${Later} key="beside" from=${beside} name="Beside" id=${id} other=${decodeURIComponent(route.value.beside)} session=${detail.session} /></main>`;
  const [label, from, name] = PANELS[panel.value] ?? [];
  return html`<main class="main" id="main" tabindex="-1">${detail && html`<${Open} conversation=${ours} />`}</main>
    ${label && detail && html`<aside class="panel" aria-label=${label}><${Later} key=${name} from=${from} name=${name} id=${id} head=${`${detail.head}/${ours.running.value}`} about=${(call) => ours.about(call)} onClose=${() => { panel.value = null; }} /></aside>`}`;
}

// A session that is not there yet: it is written when something is said.
export function NewSession() {
  const made = useRef(null);
  const sending = useRef(null);
  useEffect(() => { document.title = "New session · Killick"; }, []);
  const onAsk = (prompt) => attempt(async () => {
    if (lacks.value) { refused.value += 1; return false; }
    made.current ??= (await api.create({})).id;
    if (sending.current?.prompt !== prompt) sending.current = { prompt, key: newKey() };
    await api.turn(made.current, { prompt }, sending.current.key);
    go(address(made.current), { replace: true });
    reload();
    return true;
  });
  return html`<main class="main" id="main" tabindex="-1">
    <header class="head"><${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} /><div class="title"><h1>New session</h1></div></header><${Lost} />
    <div class="scroll" tabindex="0" role="region" aria-label="Conversation"><div class="talk"><p class="empty">Nothing was said yet.</p></div></div>
    <${Composer} id="new" running=${null} queued=${[]} onAsk=${onAsk} onStop=${() => {}} onQueued=${() => {}} onRemove=${() => {}} />
  </main>`;
}
