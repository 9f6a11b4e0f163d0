// One conversation: its head, what was said, and the place to say more.

import { api } from "./api.js";
import { address, attempt, batch, fullTime, go, html, Icon, IconButton, newKey, route, signal, toast, useEffect, useLayoutEffect, useRef, useState } from "./base.js";
import { Conversation } from "./conversation.js";
import { ContextPanel } from "./context.js";
import { Messages } from "./messages.js";
import { reload, sideOpen } from "./sessions.js";

export const drafts = new Map();
export const panelOpen = signal(false);
export const may = signal("write");
export const model = signal(null);

function Title({ session, onRename }) {
  const [editing, setEditing] = useState(false);
  const field = useRef(null);
  useEffect(() => { field.current?.select(); }, [editing]);
  if (!editing) return html`<button type="button" title="Rename" onClick=${() => may.value === "write" && setEditing(true)}>${session.title ?? "Untitled"}</button>`;
  const save = () => { setEditing(false); const name = field.current.value.trim(); if (name && name !== session.title) onRename(name); };
  return html`<input ref=${field} aria-label="Title" maxlength="200" value=${session.title ?? ""} onBlur=${save} onKeyDown=${(event) => { if (event.key === "Enter") event.target.blur(); if (event.key === "Escape") setEditing(false); }} />`;
}

function Menu({ conversation, session }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const away = (event) => { if (event.type === "keydown" ? event.key === "Escape" : !box.current.contains(event.target)) setOpen(false); };
    document.addEventListener("pointerdown", away);
    document.addEventListener("keydown", away);
    return () => { document.removeEventListener("pointerdown", away); document.removeEventListener("keydown", away); };
  }, [open]);
  const id = conversation.id;
  const act = (work) => () => { setOpen(false); attempt(work); };
  const save = (to) => act(async () => {
    const { name, data } = await api.file(id, to);
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(data), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  return html`<div class="menu" ref=${box}>
    <${IconButton} name="dots" label="More" aria-expanded=${open} aria-haspopup="menu" onClick=${() => setOpen(!open)} />
    ${open && html`<div role="menu">
      ${may.value === "write" && html`
        <button role="menuitem" onClick=${act(async () => { const made = await api.fork(id); go(address(made.id)); await reload(); })}><${Icon} name="fork" />Fork</button>
        <button role="menuitem" onClick=${act(async () => { await api.compact(id); toast("What was said is summarised for the model", { action: "Undo", onAction: () => attempt(() => api.undo(id)) }); })}><${Icon} name="fold" />Compact</button>
        <button role="menuitem" onClick=${act(async () => { await api.change(id, { archived: !session.archived }); await reload(); toast(session.archived ? "It is back" : "It is put away"); })}><${Icon} name="box" />${session.archived ? "Bring back" : "Archive"}</button>
        <hr />`}
      <small>Export</small>
      <button role="menuitem" onClick=${save("markdown")}><${Icon} name="down" />Markdown</button>
      <button role="menuitem" onClick=${save("html")}><${Icon} name="down" />One page of HTML</button>
      <button role="menuitem" onClick=${save("holdfast")}><${Icon} name="down" />Everything, as JSON lines</button>
      ${may.value === "write" && html`<hr /><button role="menuitem" class="danger" onClick=${act(async () => {
        await api.remove(id);
        go("/");
        await reload();
        toast("The session is deleted", { action: "Undo", onAction: () => attempt(async () => { await api.restore(id); await reload(); go(address(id)); }), ms: 10000 });
      })}><${Icon} name="trash" />Delete</button>`}
    </div>`}
  </div>`;
}

function Composer({ id, running, queued, onAsk, onStop, onQueued }) {
  const box = useRef(null);
  const [text, setText] = useState(drafts.get(id) ?? "");
  useEffect(() => { setText(drafts.get(id) ?? ""); if (matchMedia("(min-width: 821px)").matches) box.current?.focus(); }, [id]);
  const type = (value) => { setText(value); drafts.set(id, value); };
  const send = async () => {
    const words = text.trim();
    if (!words) return;
    type("");
    if (!(await onAsk(words))) type(text);
  };
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    if (event.key === "Escape" && running) { event.preventDefault(); onStop(); }
  };
  return html`<div class="below"><div>
    ${queued.length > 0 && html`<ul class="queue" aria-label="Waiting prompts">${queued.map((one) => html`<li key=${one.id}><span>waits</span><span>${one.text}</span>${!running && html`<button type="button" class="button small" onClick=${onQueued}>Send now</button>`}</li>`)}</ul>`}
    <div class="composer">
      <label class="away" for="prompt">Your message</label>
      <textarea id="prompt" ref=${box} rows="1" placeholder=${running ? "Say what comes next; it waits" : "Ask something"} value=${text} onInput=${(event) => type(event.target.value)} onKeyDown=${key}></textarea>
      ${running && html`<button type="button" class="button stop" onClick=${onStop}><i aria-hidden="true"></i>Stop</button>`}
      ${(!running || text.trim()) && html`<button type="button" class="button primary" disabled=${!text.trim()} onClick=${send}>${running ? "Queue" : "Send"}</button>`}
    </div>
    <div class="hint"><span><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> is a new line${running ? html`, <kbd>Esc</kbd> stops` : ""}</span><span>${model.value ?? ""}</span></div>
  </div></div>`;
}

// Stays at the end while it is at the end; who has scrolled up is left alone.
function useScroll(conversation) {
  const box = useRef(null);
  const [away, setAway] = useState(false);
  const pinned = useRef(true);
  const toEnd = () => { pinned.current = true; setAway(false); if (box.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => { if (pinned.current && box.current) box.current.scrollTop = box.current.scrollHeight; });
    if (box.current) { watch.observe(box.current); watch.observe(box.current.firstElementChild); }
    return () => watch.disconnect();
  }, [conversation]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    pinned.current = scrollHeight - scrollTop - clientHeight < 60;
    setAway(!pinned.current);
  };
  return { box, away, toEnd, onScroll, pinned };
}

function Head({ conversation, session }) {
  const origin = session.fork && address(session.fork.session_id);
  return html`<header class="head">
    <${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} />
    <div class="title"><h1 class="away">${session.title ?? "Untitled"}</h1>
      <${Title} session=${session} onRename=${(title) => attempt(async () => { await api.change(conversation.id, { title }); await reload(); })} />
      <div class="meta"><span title=${fullTime(session.created_at)}>${fullTime(session.created_at)}</span>${session.models.length > 0 && html`<span>${session.models.join(", ")}</span>`}${origin && html`<a href=${origin} onClick=${(event) => { event.preventDefault(); go(origin); }}>forked at #${session.fork.at}</a>`}</div>
    </div>
    <${IconButton} name="pin" label=${session.pinned ? "Unpin" : "Pin"} aria-pressed=${session.pinned} onClick=${() => attempt(async () => { await api.change(conversation.id, { pinned: !session.pinned }); await reload(); })} />
    <${IconButton} name="eye" label="What the model is sent" aria-pressed=${panelOpen.value} onClick=${() => { panelOpen.value = !panelOpen.value; }} />
    <${Menu} conversation=${conversation} session=${session} />
  </header>`;
}

function actions(conversation, toEnd) {
  const id = conversation.id;
  return {
    running: conversation.running.value,
    may: may.value === "write",
    onFork: (at) => attempt(async () => { const made = await api.fork(id, at); go(address(made.id)); await reload(); toast("This is a fork; the other is as it was"); }),
    onRewind: (item) => attempt(async () => {
      const through = item.role === "user" ? item.seq - 1 : item.seq;
      const { seq } = await api.rewind(id, through);
      if (item.role === "user") { drafts.set(id, item.parts.map((one) => one.text ?? "").join("")); conversation.redraft.value = seq; }
      toast("What came after is out of view", { action: "Undo", onAction: () => attempt(() => api.undo(id)), ms: 10000 });
    }),
    onContinue: (turn) => attempt(async () => { toEnd(); await conversation.ask({ prompt: null, continues: turn }, newKey()); }),
    onAgain: (turn) => attempt(async () => { toEnd(); await conversation.again(turn); }),
    onDecide: (tool, approved) => attempt(async () => {
      // Asked before: a turn that waits may be over by the time the decision is answered.
      const over = !conversation.running.value;
      await api.decide(id, tool.approval.id, approved);
      if (over) await conversation.ask({ prompt: null, continues: tool.approval.turn_id });
    }),
  };
}

function Open({ conversation }) {
  const { box, away, toEnd, onScroll, pinned } = useScroll(conversation);
  const detail = conversation.detail.value;
  const items = conversation.items.value;
  const running = conversation.running.value;
  const talk = actions(conversation, toEnd);
  const wanted = route.value.seq;
  useEffect(() => {
    const target = wanted && document.getElementById(`m${wanted}`);
    if (target) { pinned.current = false; target.scrollIntoView({ block: "center" }); }
  }, [wanted, items.length > 0]);
  const onAsk = async (prompt) => {
    toEnd();
    return attempt(async () => { await conversation.ask({ prompt, if_busy: "queue" }, newKey()); reload(); return true; });
  };
  const waits = running && !items.some((held) => held.now.state === "streaming" || held.now.tools.some((tool) => tool.state === "running" || tool.approval));
  return html`<${Head} conversation=${conversation} session=${detail.session} />
    ${conversation.connection.value === "lost" && html`<div class="offline" role="status">The connection is lost. What is answered is kept; this page comes back by itself.</div>`}
    <div class="scroll" ref=${box} onScroll=${onScroll} tabindex="0" aria-label="Conversation"><div class="talk">
      ${!items.length && !running && html`<p class="empty">Nothing was said yet.</p>`}
      <${Messages} items=${items} talk=${talk} />
      ${waits && html`<span class="waiting" role="status"><span class="away">The answer is coming</span><i></i><i></i><i></i></span>`}
      ${conversation.undoable.value !== null && !running && html`<div class="ending" role="note"><span class="why">What came after is out of view.</span><span class="push"><button type="button" class="button small" onClick=${() => attempt(() => api.undo(conversation.id))}>Undo</button></span></div>`}
    </div></div>
    ${away && html`<button type="button" class="button small jump" onClick=${toEnd}><${Icon} name="down" />To the end</button>`}
    ${may.value === "write" && html`<${Composer} key=${conversation.redraft.value} id=${conversation.id} running=${running} queued=${conversation.queued.value} onAsk=${onAsk} onStop=${() => attempt(() => conversation.stop())} onQueued=${() => attempt(() => conversation.ask({ prompt: null }))} />`}
    <div class="away" role="status" aria-live="polite">${running ? "Answering" : "Ready"}</div>`;
}

export function SessionView({ id }) {
  const [conversation, setConversation] = useState(null);
  useEffect(() => {
    const made = new Conversation(id, reload);
    made.redraft = signal(0);
    setConversation(made);
    return () => made.close();
  }, [id]);
  const ours = conversation?.id === id ? conversation : null;
  const detail = ours?.detail.value;
  useEffect(() => { document.title = detail ? `${detail.session.title ?? "Untitled"} · Holdfast` : "Holdfast"; }, [detail]);
  if (ours?.failed.value) {
    return html`<main class="main" id="main" tabindex="-1"><div class="welcome"><h1>It cannot be shown</h1><p>${ours.failed.value.message}</p><button type="button" class="button" onClick=${() => go("/")}>To the start</button></div></main>`;
  }
  return html`<main class="main" id="main" tabindex="-1">${detail && html`<${Open} conversation=${ours} />`}</main>
    ${panelOpen.value && detail && html`<${ContextPanel} id=${id} head=${`${detail.head}/${ours.running.value}`} onClose=${() => { panelOpen.value = false; }} />`}`;
}

export { batch };
