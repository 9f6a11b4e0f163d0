// One session as this page knows it: its transcript, and what has happened since, entry by entry.
// Entries and deltas carry their places, so whatever is told twice changes nothing.

import { api, follow } from "./api.js";
import { signal, batch, toast } from "./base.js";

const FINAL = new Set(["finished", "failed"]);
// What changes which entries are in view is not worked out here: the server is asked.
const ANEW = new Set(["compaction", "rewind", "undone", "visibility", "late_text", "imported"]);
const ABOUT = new Set(["renamed", "pinned", "archived", "tagged", "deleted", "restored", "moved"]);

// Offsets count characters; a text here counts those outside of the first plane twice.
const PAIRS = /[\ud800-\udbff][\udc00-\udfff]/g;
const chars = (text) => text.length - (text.match(PAIRS)?.length ?? 0);
const without = (text, count) => (count <= 0 ? text : chars(text) === text.length ? text.slice(count) : [...text].slice(count).join(""));

// The new part of an increment, when this much was known; null when something is missing in between.
function fresh(known, offset, more) {
  return offset > known ? null : without(more, known - offset);
}

// Of what a running tool prints the end is kept; all of it is on the server.
export const KEPT = 64 * 1024;
// Whole pieces go, so that those that stay need not be drawn again.
function firstKept(text) {
  let gone = 0;
  for (const piece of cutUp(text)) {
    if (text.length - gone - piece.length < KEPT) break;
    gone += piece.length;
  }
  return gone;
}
// The first screen; more is read on the way up.
export const PAGE = 60;
const SLOW_MS = 120;

const toolOf = (part) => ({ call_id: part.id, name: part.name, arguments: part.arguments ?? "", state: "not started", result: null, output: null, output_chars: 0, result_chars: 0, approval: null, settled: null });

export class Conversation {
  constructor(id, onChange, since = 0) {
    this.id = id;
    this.onChange = onChange;
    this.detail = signal(null);
    this.items = signal([]);
    this.queued = signal([]);
    this.running = signal(null);
    this.connection = signal("loading");
    this.undoable = signal(null);
    this.failed = signal(null);
    this.earlier = signal(0);
    this.turns = signal(new Map());
    this.before = null;
    this.reading = false;
    this.asked = new Map();
    this.bySeq = new Map();
    this.byId = new Map();
    this.touched = new Set();
    this.frame = 0;
    this.loads = 0;
    this.again_at = 0;
    this.leave = () => {};
    this.gone = false;
    this.load({ since });
  }

  close() {
    this.gone = true;
    clearTimeout(this.slow);
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

  async load({ since = 0 } = {}) {
    const mine = ++this.loads;
    const over = () => this.gone || mine !== this.loads;
    clearTimeout(this.again_at);
    this.leave();
    try {
      // What was read on the way up stays in view when all of it is read anew.
      const last = Math.min(500, Math.max(PAGE, this.items.value.length));
      const [transcript, detail] = await Promise.all([api.transcript(this.id, { last, text: KEPT, since: since || undefined }), api.session(this.id)]);
      if (over()) return;
      batch(() => {
        this.failed.value = null;
        this.asked = new Map(detail.approvals.map((one) => [`${one.message_id}/${one.call_id}`, one]));
        this.setAll(transcript.shown);
        this.earlier.value = transcript.earlier;
        this.before = transcript.before;
        this.addTurns(transcript.turns);
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

  addTurns(turns) {
    const known = new Map(this.turns.value);
    for (const one of turns) known.set(one.id, one);
    this.turns.value = known;
  }

  // The page before what is shown. True when there was one.
  async more(since = 0) {
    if (this.reading || this.before === null) return false;
    this.reading = true;
    try {
      const { shown, turns, before, earlier } = await api.transcript(this.id, { before: this.before, last: 100, text: KEPT, since: since || undefined });
      if (this.gone) return false;
      batch(() => {
        for (const one of shown) this.add(this.itemOf(one));
        this.before = before;
        this.earlier.value = earlier;
        this.addTurns(turns);
        this.order();
      });
      return shown.length > 0;
    } finally {
      this.reading = false;
    }
  }

  // Whatever began at this place, or the fold that it lies in, is among what is shown.
  async reach(seq) {
    if (this.before !== null && !(this.items.value[0]?.now.seq <= seq)) await this.more(seq);
  }

  setDetail(detail) {
    this.detail.value = detail;
    this.queued.value = detail.queued.map((one) => ({ id: one.id, text: one.text }));
  }

  async refresh() {
    try {
      const detail = await api.session(this.id);
      if (!this.gone) {
        this.detail.value = detail;
        if (detail.turn) this.addTurns([detail.turn]);
      }
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
    this.put(held, fields);
    this.frame ||= requestAnimationFrame(() => this.paint());
    if (document.hidden) this.paint();
  }

  // What a tool prints comes faster than it can be read: a few times a second is enough.
  changeSlowly(held, fields) {
    this.put(held, fields);
    this.slow ||= setTimeout(() => this.paint(), SLOW_MS);
  }

  put(held, fields) {
    Object.assign(held.now, fields);
    this.touched.add(held);
  }

  paint() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.slow);
    this.frame = 0;
    this.slow = 0;
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
    const base = { seq, key: seq, at, turn_id: body.turn_id ?? null, tools: [], parts: [], folded: [], folds: 0, words: null, status: null, reason: null, cause: null, fresh: true };
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
      case "tool_started": this.tool(body.message_id, body.call_id, { state: "running", approval: null, output: null, output_chars: 0, output_from: 0, settled: null }); break;
      case "tool_output": this.tool(body.message_id, body.call_id, { output: body.output.slice(-KEPT), output_chars: chars(body.output) }); break;
      case "settled": this.tool(body.message_id, body.call_id, { settled: { id: body.id, outcome: body.outcome, by: body.by ?? "person", result: body.result ?? null, evidence: body.evidence ?? null } }); break;
      case "tool_result":
      case "late_result":
        this.tool(body.message_id, body.result.call_id, { ...resultOf(body.result), ...(body.output ? { output: body.output.slice(-KEPT), output_chars: chars(body.output) } : {}) });
        break;
      case "approval_asked": this.tool(body.message_id, body.call_id, { approval: { id: body.id, turn_id: body.turn_id, arguments_hash: body.arguments_hash } }); this.readApprovals(); break;
      case "approval_decided":
        for (const held of this.bySeq.values()) {
          if (held.now.tools.some((one) => one.approval?.id === body.id)) this.change(held, { tools: held.now.tools.map((one) => (one.approval?.id === body.id ? { ...one, approval: null, denied: !body.approved, state: !body.approved && one.state === "not started" ? "denied" : one.state } : one)) });
        }
        break;
      case "prompt_queued":
        if (!this.queued.value.some((one) => one.id === body.id)) this.queued.value = [...this.queued.value, { id: body.id, text: textOf(body.parts), steers: body.steers }];
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
    this.endedIn(base.seq, body.turn_id);
    if (this.running.value === body.turn_id) this.running.value = null;
    this.order();
    this.refresh();
  }

  // Why it ended is said by the server, in words; this page shows no text of a provider.
  async endedIn(seq, turn_id) {
    const detail = await api.session(this.id).catch(() => null);
    const held = this.bySeq.get(seq);
    if (!this.gone && held && detail?.turn?.id === turn_id) this.change(held, { words: detail.turn.words });
  }

  takeDelta(delta) {
    const held = this.byId.get(delta.message_id);
    if (!held) return;
    if (delta.call_id !== null) {
      const tool = held.now.tools.find((one) => one.call_id === delta.call_id);
      if (!tool || FINAL.has(tool.state)) return;
      const more = fresh(tool.output_chars ?? 0, delta.offset, delta.text);
      if (!more) return;
      const all = (tool.output ?? "") + more;
      const gone = all.length > 1.5 * KEPT ? firstKept(all) : 0;
      const fields = { output: gone ? all.slice(gone) : all, output_from: (tool.output_from ?? 0) + gone, output_chars: (tool.output_chars ?? 0) + chars(more) };
      this.changeSlowly(held, { tools: held.now.tools.map((one) => (one === tool ? { ...one, ...fields } : one)) });
      return;
    }
    if (held.now.state !== "streaming") return;
    // What the transcript had of a streaming message is shown until its deltas come again.
    held.now.live ??= new Map();
    const part = held.now.live.get(delta.part) ?? begin(delta);
    const field = part.type === "tool_call" ? "arguments" : "text";
    if (delta.type !== "part") {
      const more = fresh(part.chars ?? 0, delta.offset, delta.text);
      if (more === null) { this.load(); return; }
      part[field] = (part[field] ?? "") + more;
      part.chars = (part.chars ?? 0) + chars(more);
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

  // What a call is about, as far as it was read.
  about({ message_id, call_id }) {
    const tool = this.byId.get(message_id)?.now.tools.find((one) => one.call_id === call_id);
    return tool ? brief(tool.arguments) : "";
  }

  tool(message_id, call_id, fields) {
    const held = this.byId.get(message_id);
    if (held) this.change(held, { tools: held.now.tools.map((one) => (one.call_id === call_id ? { ...one, ...fields } : one)) });
  }

  resultOf(turn_id, part) {
    for (const held of this.bySeq.values()) {
      if (held.now.turn_id === turn_id && held.now.tools.some((one) => one.call_id === part.call_id)) {
        this.change(held, { tools: held.now.tools.map((one) => (one.call_id === part.call_id ? { ...one, ...resultOf(part) } : one)) });
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

const resultOf = (result) => ({ result, result_chars: typeof result.content === "string" ? chars(result.content) : 0, state: result.is_error ? "failed" : "finished" });

function begin(delta) {
  if (delta.head) return { ...delta.head };
  return { type: delta.type === "reasoning" ? "reasoning" : "text", text: "" };
}

function split(parts) {
  return { parts: parts.filter((one) => one.type !== "tool_call"), tools: parts.filter((one) => one.type === "tool_call").map(toolOf) };
}

export const textOf = (parts) => parts.filter((one) => one.type === "text").map((one) => one.text).join("");

// -- what a call is about, in a few words -----------------------------------------------------------

export function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

export const COMMANDS = ["command", "cmd", "script", "code"];
export const PATHS = ["path", "file_path", "file", "filename", "target_file"];
export const textIn = (value, names) => names.map((name) => value?.[name]).find((one) => typeof one === "string");

export function brief(text) {
  const value = parsed(text);
  if (value === undefined || value === null || typeof value !== "object") return text.slice(0, 200);
  const main = textIn(value, COMMANDS) ?? textIn(value, PATHS);
  return (main ?? Object.values(value).map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(" ")).slice(0, 200);
}

// Many calls of one tool that all went well, and changed no file, are one line.
export const MANY = 5;
const WRITES = /"(?:content|contents|file_text|new_string|new_str|new_text|patch|diff)"\s*:/;
export const quiet = (tool) => tool.state === "finished" && !tool.approval && !WRITES.test(tool.arguments);

// -- what a tool prints, in pieces ------------------------------------------------------------------

const PIECE = 4 * 1024;
// Cut at ends of lines, and always at the same ones while more comes.
export function cutUp(text) {
  const pieces = [];
  let from = 0;
  while (from < text.length) {
    const line = text.length - from > PIECE ? text.indexOf("\n", from + PIECE) : -1;
    const to = line >= 0 && line < from + 4 * PIECE ? line + 1 : Math.min(text.length, from + 4 * PIECE);
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}
