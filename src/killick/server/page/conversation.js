// One session as this page knows it: its transcript, and what has happened since, entry by entry.
// Entries and deltas carry their places, so whatever is told twice changes nothing.

import { api, follow } from "./api.js";
import { signal, batch, toast } from "./base.js";

const FINAL = new Set(["finished", "failed"]);
// What changes which entries are in view is not worked out here: the server is asked.
const ANEW = new Set(["compaction", "rewind", "undone", "visibility", "late_text", "imported"]);
const ABOUT = new Set(["renamed", "pinned", "archived", "tagged", "deleted", "restored", "moved"]);

function grown(text, offset, more) {
  if (offset > text.length) return null;
  return offset + more.length <= text.length ? text : text + more.slice(text.length - offset);
}

const toolOf = (part) => ({ call_id: part.id, name: part.name, arguments: part.arguments ?? "", state: "not started", result: null, output: null, approval: null });

export class Conversation {
  constructor(id, onChange) {
    this.id = id;
    this.onChange = onChange;
    this.detail = signal(null);
    this.items = signal([]);
    this.queued = signal([]);
    this.running = signal(null);
    this.connection = signal("loading");
    this.undoable = signal(null);
    this.failed = signal(null);
    this.asked = new Map();
    this.bySeq = new Map();
    this.byId = new Map();
    this.touched = new Set();
    this.frame = 0;
    this.loads = 0;
    this.again_at = 0;
    this.leave = () => {};
    this.gone = false;
    this.load();
  }

  close() {
    this.gone = true;
    clearTimeout(this.again_at);
    this.leave();
    cancelAnimationFrame(this.frame);
  }

  // The newest load counts: one that is overtaken must not follow as well.
  // What is allowed is what the server says was asked, with its hash; not what this page has put together.
  async readApprovals() {
    const { approvals } = await api.session(this.id).catch(() => ({ approvals: [] }));
    for (const asked of approvals) {
      const held = this.byId.get(asked.message_id);
      const waits = held?.now.tools.some((tool) => tool.call_id === asked.call_id && tool.approval?.id === asked.id);
      if (waits) this.tool(asked.message_id, asked.call_id, { approval: asked });
    }
  }

  async load() {
    const mine = ++this.loads;
    const over = () => this.gone || mine !== this.loads;
    clearTimeout(this.again_at);
    this.leave();
    try {
      const [transcript, detail] = await Promise.all([api.transcript(this.id), api.session(this.id)]);
      if (over()) return;
      batch(() => {
        this.failed.value = null;
        this.asked = new Map(detail.approvals.map((one) => [`${one.message_id}/${one.call_id}`, one]));
        this.setAll(transcript.shown);
        this.setDetail(detail);
        this.undoable.value = transcript.undoable;
        const newest = transcript.turns.at(-1);
        this.running.value = newest?.status === "running" ? newest.id : null;
      });
      this.leave = follow(this.id, transcript.cursor, {
        onEvent: (data) => this.take(data),
        onReload: () => { if (!over()) this.again_at = setTimeout(() => this.load(), 500); },
        onState: (state) => { this.connection.value = state; },
      });
    } catch (error) {
      if (over()) return;
      const passes = error.status === 0 || error.status === 503;
      if (!passes || !this.detail.value) this.failed.value = error;
      if (passes) {
        this.connection.value = "lost";
        this.again_at = setTimeout(() => this.load(), 1500);
      }
    }
  }

  setDetail(detail) {
    this.detail.value = detail;
    this.queued.value = detail.queued.map((one) => ({ id: one.id, text: one.text }));
  }

  async refresh() {
    try {
      const detail = await api.session(this.id);
      if (!this.gone) this.detail.value = detail;
    } catch (error) {
      if (error.status === 410) this.failed.value = error;
    }
    this.onChange();
  }

  setAll(shown) {
    this.bySeq.clear();
    this.byId.clear();
    for (const one of shown) this.add(this.itemOf(one));
    this.order();
  }

  itemOf(shown) {
    const tools = shown.tools.map((tool) => ({ ...tool, result: tool.result ?? null, output: tool.output ?? null, approval: this.asked.get(`${shown.id}/${tool.call_id}`) ?? null }));
    const key = shown.kind === "compaction" ? `f${shown.seq}` : shown.seq;
    return { ...shown, key, tools, parts: shown.parts, fresh: false, folded: shown.folded?.map((one) => this.itemOf(one)) ?? [] };
  }

  add(item) {
    if (this.bySeq.has(item.key)) return this.bySeq.get(item.key);
    const held = { now: item, shown: signal(item) };
    this.bySeq.set(item.key, held);
    if (item.id) this.byId.set(item.id, held);
    return held;
  }

  order() {
    this.items.value = [...this.bySeq.values()].sort((one, other) => one.now.seq - other.now.seq);
  }

  // Signals change once for each frame, however many deltas come.
  change(held, fields) {
    Object.assign(held.now, fields);
    this.touched.add(held);
    this.frame ||= requestAnimationFrame(() => this.paint());
    if (document.hidden) this.paint();
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    batch(() => {
      for (const held of this.touched) held.shown.value = { ...held.now };
      this.touched.clear();
    });
  }

  take(event) {
    if (event.kind === "delta") { this.takeDelta(event); return; }
    if (ANEW.has(event.kind)) { this.load(); return; }
    if (ABOUT.has(event.kind)) { this.refresh(); return; }
    this.takeEntry(event, event.body);
  }

  takeEntry({ kind, seq, at }, body) {
    const base = { seq, key: seq, at, turn_id: body.turn_id ?? null, tools: [], parts: [], folded: [], status: null, reason: null, cause: null, fresh: true };
    switch (kind) {
      case "turn_started":
        this.running.value = body.turn_id;
        this.undoable.value = null;
        this.refresh();
        break;
      case "message":
        if (body.role === "tool") { for (const part of body.parts) this.resultOf(body.turn_id, part); break; }
        this.add({ ...base, kind: "message", id: body.id, role: body.role, state: "complete", ...split(body.parts) });
        this.order();
        break;
      case "message_started":
        this.add({ ...base, kind: "message", id: body.id, role: body.role ?? "assistant", state: "streaming", live: new Map() });
        this.order();
        break;
      case "message_ended": {
        const held = this.byId.get(body.id);
        if (held) this.change(held, { state: body.state, live: null, ...this.merge(held.now, split(body.parts)) });
        break;
      }
      case "tool_started": this.tool(body.message_id, body.call_id, { state: "running", approval: null }); break;
      case "tool_output": this.tool(body.message_id, body.call_id, { output: body.output }); break;
      case "tool_result":
      case "late_result":
        this.tool(body.message_id, body.result.call_id, { result: body.result, state: body.result.is_error ? "failed" : "finished", ...(body.output ? { output: body.output } : {}) });
        break;
      case "approval_asked": this.tool(body.message_id, body.call_id, { approval: { id: body.id, turn_id: body.turn_id, arguments_hash: body.arguments_hash } }); this.readApprovals(); break;
      case "approval_decided":
        for (const held of this.bySeq.values()) {
          if (held.now.tools.some((one) => one.approval?.id === body.id)) this.change(held, { tools: held.now.tools.map((one) => (one.approval?.id === body.id ? { ...one, approval: null, denied: !body.approved } : one)) });
        }
        break;
      case "prompt_queued":
        if (!this.queued.value.some((one) => one.id === body.id)) this.queued.value = [...this.queued.value, { id: body.id, text: textOf(body.parts) }];
        break;
      case "prompt_taken":
      case "prompt_withdrawn":
        this.queued.value = this.queued.value.filter((one) => one.id !== body.id);
        break;
      case "turn_ended": this.takeEnding(base, body); break;
      default:
    }
  }

  takeEnding(base, body) {
    for (const held of [...this.bySeq.values()]) {
      if (held.now.turn_id !== body.turn_id || held.now.kind !== "message") continue;
      if (held.now.state === "streaming") { this.bySeq.delete(held.now.key); continue; }
      if (held.now.tools.some((one) => one.state === "running")) this.change(held, { tools: held.now.tools.map((one) => (one.state === "running" ? { ...one, state: "unknown" } : one)) });
    }
    if (body.status !== "completed") this.add({ ...base, kind: "ending", id: null, role: "system", state: "complete", status: body.status, reason: body.reason, cause: body.cause ?? null });
    if (this.running.value === body.turn_id) this.running.value = null;
    this.order();
    this.refresh();
  }

  takeDelta(delta) {
    const held = this.byId.get(delta.message_id);
    if (!held) return;
    if (delta.call_id !== null) {
      const tool = held.now.tools.find((one) => one.call_id === delta.call_id);
      if (!tool || FINAL.has(tool.state)) return;
      const output = grown(tool.output ?? "", delta.offset, delta.text);
      if (output !== null) this.tool(delta.message_id, delta.call_id, { output });
      return;
    }
    if (held.now.state !== "streaming") return;
    // What the transcript had of a streaming message is shown until its deltas come again.
    held.now.live ??= new Map();
    const part = held.now.live.get(delta.part) ?? begin(delta);
    const field = part.type === "tool_call" ? "arguments" : "text";
    if (delta.type !== "part") {
      const text = grown(part[field] ?? "", delta.offset, delta.text);
      if (text === null) { this.load(); return; }
      part[field] = text;
    }
    held.now.live.set(delta.part, part);
    const parts = [...held.now.live.entries()].sort(([one], [other]) => one - other).map(([, one]) => ({ ...one }));
    this.change(held, this.merge(held.now, split(parts)));
  }

  // Tools keep what is known of them while their calls are still being written.
  merge(before, { parts, tools }) {
    const known = new Map(before.tools.map((one) => [one.call_id, one]));
    return { parts, tools: tools.map((one) => ({ ...one, ...known.get(one.call_id), name: one.name, arguments: one.arguments })) };
  }

  tool(message_id, call_id, fields) {
    const held = this.byId.get(message_id);
    if (held) this.change(held, { tools: held.now.tools.map((one) => (one.call_id === call_id ? { ...one, ...fields } : one)) });
  }

  resultOf(turn_id, part) {
    for (const held of this.bySeq.values()) {
      if (held.now.turn_id === turn_id && held.now.tools.some((one) => one.call_id === part.call_id)) {
        this.change(held, { tools: held.now.tools.map((one) => (one.call_id === part.call_id ? { ...one, result: part, state: part.is_error ? "failed" : "finished" } : one)) });
      }
    }
  }

  // -- what a person does ---------------------------------------------------------------------------

  ask(fields, key) {
    return api.turn(this.id, fields, key);
  }

  async stop() {
    try {
      await api.stop(this.id, this.running.value ?? undefined);
    } catch (error) {
      if (error.code !== "not_running") throw error;
      toast(`It was ${error.body.status ?? "over"} already`, { ms: 2500 });
    }
  }

  async again(turn_id) {
    const items = this.items.value.map((held) => held.now).filter((one) => one.turn_id === turn_id && one.kind === "message");
    const prompt = items.filter((one) => one.role === "user").at(-1);
    const ran = items.some((one) => one.tools.some((tool) => !["not started", "denied", "cut off"].includes(tool.state)));
    // What tools have done stays in view; an answer without effects makes room for the next.
    if (ran || !prompt) return this.ask({ prompt: "Try again.", retry_of: turn_id });
    await api.rewind(this.id, prompt.seq);
    return this.ask({ prompt: null, retry_of: turn_id });
  }
}

function begin(delta) {
  if (delta.head) return { ...delta.head };
  return { type: delta.type === "reasoning" ? "reasoning" : "text", text: "" };
}

function split(parts) {
  return { parts: parts.filter((one) => one.type !== "tool_call"), tools: parts.filter((one) => one.type === "tool_call").map(toolOf) };
}

export const textOf = (parts) => parts.filter((one) => one.type === "text").map((one) => one.text).join("");
