// Talking to the server: JSON both ways, errors as sentences, and events that go on where they were.

import { signal } from "./base.js";

const KEY = "killick-token";

// Whether the server has answered the last time that it was asked.
export const reachable = signal(true);

export class Failure extends Error {
  constructor(status, body) {
    super(body?.message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body?.code ?? "unknown";
    this.body = body ?? {};
  }
}

// A token may come in the address, behind the hash, which no server and no log ever sees.
function takeToken() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(history.state, "", location.pathname + location.search);
  }
}
takeToken();

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function headers(more = {}) {
  const secret = token.get();
  return secret ? { ...more, Authorization: `Bearer ${secret}` } : more;
}

// What first.js has asked for while the rest of the page was still on its way; each is used once.
function begun(path, options) {
  const early = globalThis.killickFirst?.get(path);
  if (!early || (options.method ?? "GET") !== "GET") return null;
  globalThis.killickFirst.delete(path);
  return early.catch(() => fetch(path, options));
}

let onTokenNeeded = () => {};
export const whenTokenNeeded = (tell) => { onTokenNeeded = tell; };

async function reach(path, options) {
  try {
    const answer = await (begun(path, options) ?? fetch(path, options));
    reachable.value = true;
    return answer;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    reachable.value = false;
    throw new Failure(0, { code: "unreachable", message: "The server does not answer; try again in a moment." });
  }
}

async function ask(method, path, body, more = {}) {
  const options = { method, headers: headers(more) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await reach(path, options);
  const type = answer.headers.get("Content-Type") ?? "";
  const value = type.startsWith("application/json") ? await answer.json() : null;
  if (!answer.ok) {
    if (answer.status === 401) onTokenNeeded(Boolean(token.get()));
    throw new Failure(answer.status, value);
  }
  return value;
}

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};
const one = (id) => `/api/sessions/${encodeURIComponent(id)}`;

export const api = {
  about: () => ask("GET", "/api/about"),
  sessions: (filters) => ask("GET", `/api/sessions${query(filters)}`),
  search: (q) => ask("GET", `/api/search${query({ q, limit: 20 })}`),
  create: (fields) => ask("POST", "/api/sessions", fields),
  session: (id) => ask("GET", one(id)),
  change: (id, fields) => ask("PATCH", one(id), fields),
  remove: (id) => ask("DELETE", one(id)),
  restore: (id) => ask("POST", `${one(id)}/restore`),
  transcript: (id, page = {}) => ask("GET", `${one(id)}/transcript${query(page)}`),
  tool: (id, message_id, call_id) => ask("GET", `${one(id)}/tool${query({ message_id, call_id })}`),
  context: (id, format, at) => ask("GET", `${one(id)}/context${query({ format, at })}`),
  timeline: (id) => ask("GET", `${one(id)}/timeline`),
  journal: (id) => ask("GET", `${one(id)}/journal`),
  calls: (id) => ask("GET", `${one(id)}/calls`),
  sent: (id, call, format) => ask("GET", `${one(id)}/calls/${encodeURIComponent(call)}${query({ format })}`),
  settle: (id, fields) => ask("POST", `${one(id)}/settle`, fields),
  turn: (id, fields, key) => ask("POST", `${one(id)}/turns`, fields, key ? { "Idempotency-Key": key } : {}),
  steer: (id, prompt, key) => ask("POST", `${one(id)}/steer`, { prompt }, { "Idempotency-Key": key }),
  stop: (id, turn_id) => ask("POST", `${one(id)}/stop`, { turn_id, reason: "on the web page" }),
  withdraw: (id, prompt) => ask("DELETE", `${one(id)}/queue/${encodeURIComponent(prompt)}`),
  decide: (id, asked, approved, always = false) => ask("POST", `${one(id)}/approvals/${encodeURIComponent(asked.id)}`, { approved, always, arguments_hash: asked.arguments_hash }),
  allowed: (id) => ask("GET", `${one(id)}/allowed`),
  askAgain: (id, { tool, arguments_hash }) => ask("POST", `${one(id)}/ask-again`, { tool, arguments_hash }),
  fork: (id, at) => ask("POST", `${one(id)}/fork`, { at }),
  rewind: (id, through) => ask("POST", `${one(id)}/rewind`, { through }),
  undo: (id) => ask("POST", `${one(id)}/undo`),
  compact: (id) => ask("POST", `${one(id)}/compact`, {}),
  waiting: () => ask("GET", "/api/waiting"),
  stats: (since) => ask("GET", `/api/stats${query({ since })}`),
  async take(file) {
    const answer = await reach(`/api/import${query({ name: file.name })}`, { method: "POST", headers: headers({ "Content-Type": "application/octet-stream" }), body: file });
    const value = await answer.json();
    if (!answer.ok) throw new Failure(answer.status, value);
    return value;
  },
  async file(id, to) {
    const answer = await reach(`${one(id)}/export${query({ to })}`, { headers: headers() });
    if (!answer.ok) throw new Failure(answer.status, await answer.json());
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "session";
    return { name, data: await answer.blob() };
  },
  async blob(name) {
    const answer = await reach(`/api/blobs/${encodeURIComponent(name)}`, { headers: headers() });
    if (!answer.ok) throw new Failure(answer.status, await answer.json());
    return answer.blob();
  },
};

// A session's events from a cursor on. Comes back by itself when the connection breaks, where it was.
export const follow = (id, cursor, tells) => listen(`${one(id)}/events`, cursor, tells);
// What a person acts on in all sessions, from now on.
export const followNews = (tells) => listen("/api/news?after=end", null, tells);

function listen(path, cursor, { onEvent, onReload, onState }) {
  const leaving = new AbortController();
  let wait = 300;
  let beat = 0;

  const sleep = (ms) => new Promise((done) => {
    const timer = setTimeout(done, ms);
    leaving.signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });

  async function connect() {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    leaving.signal.addEventListener("abort", abort, { once: true });
    // Nothing for this long, not even a heartbeat: the connection is dead and nobody told us.
    beat = setInterval(abort, 45000);
    try {
      const answer = await reach(path, { headers: headers(cursor ? { "Last-Event-ID": cursor } : {}), signal: attempt.signal });
      if (!answer.ok) {
        if (answer.status === 401) onTokenNeeded(Boolean(token.get()));
        if ([400, 404, 410].includes(answer.status)) { onReload(); return false; }
        throw new Error(String(answer.status));
      }
      onState("live");
      wait = 300;
      for await (const event of events(answer.body, () => { clearInterval(beat); beat = setInterval(abort, 45000); })) {
        if (event.name === "reload") { onReload(); return false; }
        if (event.id) cursor = event.id;
        onEvent(event.data);
      }
      return true;
    } finally {
      clearInterval(beat);
      leaving.signal.removeEventListener("abort", abort);
    }
  }

  (async () => {
    while (!leaving.signal.aborted) {
      try {
        if (!(await connect())) return;
      } catch (error) {
        if (leaving.signal.aborted) return;
      }
      if (leaving.signal.aborted) return;
      onState("lost");
      await sleep(wait);
      wait = Math.min(wait * 2, 5000);
    }
  })();
  return () => leaving.abort();
}

const breath = () => new Promise((done) => { const { port1, port2 } = new MessageChannel(); port1.onmessage = done; port2.postMessage(0); });

async function* events(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onBytes();
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    let began = performance.now();
    for (const text of whole) {
      const event = { id: null, name: "message", data: null };
      for (const line of text.split("\n")) {
        const at = line.indexOf(": ");
        if (at <= 0) continue;
        const field = line.slice(0, at);
        const content = line.slice(at + 2);
        if (field === "id") event.id = content;
        else if (field === "event") event.name = content;
        else if (field === "data") event.data = JSON.parse(content);
      }
      if (event.data) yield event;
      // Many events in one piece are taken over several frames.
      if (performance.now() - began > 10) { await breath(); began = performance.now(); }
    }
  }
}
