// What the model is sent now, and what it was sent in each call before.

import { api } from "./api.js";
import { attempt, clip, clockTime, html, IconButton, shortCount, useEffect, useState } from "./base.js";
import { parsed } from "./conversation.js";

const FORMATS = { "openai-chat": "OpenAI Chat", "openai-responses": "OpenAI Responses", anthropic: "Anthropic", gemini: "Gemini" };
const FIELD = { "openai-responses": "input", gemini: "contents" };
const PROOF = { equal: "This is what was sent: it has the hash that was recorded then.", different: "Something else was sent: the hash that was recorded then is another.", "not recorded": "What was sent was not recorded with a hash; this is computed from the journal as it was then." };

// Sentences that stand in a context though nobody said them: what became of a turn or a call.
const OURS = /\[(?:The (?:turn|answer|tool call|message|outcome|conversation|model's provider)|This tool call|A tool|Earlier messages|What (?:this|followed)|There was no answer|Of the result|\d+ of \d+ characters)[^\]]*\]/g;

function marked(text, repaired) {
  if (!repaired) return text;
  const pieces = [];
  let from = 0;
  for (const found of text.matchAll(OURS)) {
    pieces.push(text.slice(from, found.index), html`<mark title="Put in by Killick; nobody said it">${found[0]}</mark>`);
    from = found.index + found[0].length;
  }
  return [...pieces, text.slice(from)];
}

// A message of any format as texts, calls and results; whatever is none of these stays JSON.
const whole = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const inside = (value) => (Array.isArray(value) && value.every((one) => typeof one.text === "string") ? value.map((one) => one.text).join("\n\n") : whole(value));

function pieceOf(one) {
  if (typeof one === "string") return { text: one };
  if (typeof one.text === "string" && !one.thought) return { text: one.text };
  const call = one.function ?? one.functionCall ?? (["function_call", "tool_use"].includes(one.type) && one);
  if (call) {
    const given = call.arguments ?? call.input ?? call.args ?? {};
    return { what: `calls ${call.name}`, text: whole(typeof given === "string" ? parsed(given) ?? given : given) };
  }
  const result = one.functionResponse ?? (["function_call_output", "tool_result"].includes(one.type) && one);
  if (result) return { what: result.is_error ? "an error came back" : "a result came back", text: inside(result.content ?? result.output ?? result.response) };
  return { what: one.type ?? "", text: whole(one) };
}

function piecesOf({ role, content, parts, tool_calls, ...rest }) {
  if (role === "tool") return [{ what: "a result came back", text: inside(content) }];
  if (!role) return [pieceOf(rest)];
  const said = content ?? parts ?? [];
  const more = Object.entries(rest).filter(([name]) => !["type", "id", "status", "name"].includes(name));
  return [...more.map(([what, value]) => ({ what, text: whole(value) })), ...[said].flat().concat(tool_calls ?? []).map(pieceOf)];
}

function Body({ body, repaired, raw }) {
  if (raw) return html`<pre tabindex="0">${whole(body)}</pre>`;
  return piecesOf(body).map((one) => html`${one.what && html`<p class="what">${one.what}</p>`}<pre tabindex="0">${marked(one.text, repaired)}</pre>`);
}

function curl(sent) {
  const body = { model: sent.model ?? "MODEL", ...sent.settings, ...(sent.system ? { system: sent.system } : {}), ...(sent.tools ? { tools: sent.tools } : {}), [FIELD[sent.format] ?? "messages"]: sent.messages.map((one) => one.body) };
  return `curl "$URL" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
}

function Message({ one, number, repaired, compares, raw }) {
  return html`<section class=${`sent ${compares && one.new ? "new" : ""}`}><h3><span>${one.body.role ?? one.body.type ?? "item"}${compares && one.new ? html` <em>new</em>` : ""}</span><span>${one.tokens ? `about ${shortCount(one.tokens)} tokens · ` : ""}${number + 1}</span></h3><${Body} body=${one.body} repaired=${repaired} raw=${raw} /></section>`;
}

// The newest messages; those before them when they are asked for.
export function Messages({ messages, repaired, compares, raw }) {
  const [count, setCount] = useState(60);
  const from = Math.max(0, messages.length - count);
  return html`${from > 0 && html`<button type="button" class="button small more" onClick=${() => setCount(count + 200)}>Show earlier, of ${messages.length.toLocaleString()}</button>`}
    ${messages.slice(from).map((one, at) => html`<${Message} key=${from + at} one=${one} number=${from + at} repaired=${repaired} compares=${compares} raw=${raw} />`)}`;
}

export function Sent({ id, head, onClose }) {
  const [format, setFormat] = useState("openai-chat");
  const [call, setCall] = useState("");
  const [calls, setCalls] = useState([]);
  const [sent, setSent] = useState(null);
  const [raw, setRaw] = useState(false);
  useEffect(() => {
    let gone = false;
    attempt(async () => {
      const listed = (await api.calls(id)).calls;
      if (!gone) setCalls(listed);
      const found = call ? await api.sent(id, call, format) : await api.context(id, format);
      if (!gone) setSent(call ? found : { ...found, model: null, settings: {}, tools: null, proof: null, dropped: 0, messages: found.messages.map((body) => ({ body, tokens: 0, new: false })) });
    });
    return () => { gone = true; };
  }, [id, format, head, call]);
  const tokens = sent?.messages.reduce((sum, one) => sum + one.tokens, 0) ?? 0;
  const repaired = (sent?.repairs.length ?? 0) > 0;
  return html`<header><h2>What the model is sent</h2><${IconButton} name="close" label="Close" onClick=${onClose} /></header>
    <div class="choose"><label><span>Call</span><select value=${call} onChange=${(event) => setCall(event.target.value)}><option value="">Now, if it were asked</option>${calls.map((one, number) => html`<option value=${one.id}>${number + 1}: ${clockTime(one.at)} ${one.model ?? ""}${one.attempt > 1 ? `, attempt ${one.attempt}` : ""}${one.failed ? ", failed" : ""}</option>`).reverse()}</select></label>
      <label><span>Format</span><select value=${format} onChange=${(event) => setFormat(event.target.value)}>${Object.entries(FORMATS).map(([name, label]) => html`<option value=${name}>${label}</option>`)}</select></label>
      ${sent && html`<button type="button" class="button small" aria-pressed=${raw} onClick=${() => setRaw(!raw)}>JSON</button><button type="button" class="button small" onClick=${() => clip(curl(sent))}>Copy as curl</button>`}</div>
    <div class="body" tabindex="0" role="region" aria-label="Its messages">
      ${sent?.proof && html`<p class=${sent.proof === "different" ? "repair" : "proof"}>${PROOF[sent.proof]}</p><p class="proof">${sent.messages.length.toLocaleString()} messages, about ${shortCount(tokens)} tokens; ${sent.messages.filter((one) => one.new).length} are new since the call before${sent.dropped ? `, ${sent.dropped} of that are gone` : ""}.</p>`}
      ${sent?.repairs.map((one) => html`<p class="repair" key=${`${one.seq}${one.action}`}>#${one.seq}, ${one.action}: ${one.reason}</p>`)}
      ${sent?.system && html`<section class="sent"><h3>system</h3><pre tabindex="0">${sent.system}</pre></section>`}
      ${sent?.tools && html`<details class="sent"><summary>${Array.isArray(sent.tools) ? sent.tools.length : ""} tools</summary><pre tabindex="0">${JSON.stringify(sent.tools, null, 2)}</pre></details>`}
      ${sent && html`<${Messages} messages=${sent.messages} repaired=${repaired} compares=${Boolean(sent.proof)} raw=${raw} />`}
      ${sent && !sent.messages.length && html`<p class="empty">Nothing would be sent yet.</p>`}
    </div>`;
}
