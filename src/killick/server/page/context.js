// What the model is sent, beside what the person sees.

import { api } from "./api.js";
import { attempt, html, IconButton, useEffect, useState } from "./base.js";

const FORMATS = { "openai-chat": "OpenAI Chat", "openai-responses": "OpenAI Responses", anthropic: "Anthropic", gemini: "Gemini" };

export function ContextPanel({ id, head, onClose }) {
  const [format, setFormat] = useState("openai-chat");
  const [context, setContext] = useState(null);
  useEffect(() => {
    let gone = false;
    attempt(async () => {
      const found = await api.context(id, format);
      if (!gone) setContext(found);
    });
    return () => { gone = true; };
  }, [id, format, head]);
  return html`<aside class="panel" aria-label="What the model is sent">
    <header><h2>What the model is sent</h2>
      <label><span class="away">Format</span><select value=${format} onChange=${(event) => setFormat(event.target.value)}>${Object.entries(FORMATS).map(([name, label]) => html`<option value=${name}>${label}</option>`)}</select></label>
      <${IconButton} name="close" label="Close" onClick=${onClose} /></header>
    <div class="body" tabindex="0">
      ${context?.repairs.map((one) => html`<p class="repair" key=${`${one.seq}${one.action}`}>#${one.seq}: ${one.action}. ${one.reason}</p>`)}
      ${context?.system && html`<section class="sent"><h3>system</h3><pre>${context.system}</pre></section>`}
      ${context?.messages.map((one, number) => html`<section class="sent" key=${number}><h3><span>${one.role ?? one.type ?? "item"}</span><span>${number + 1}</span></h3><pre>${said(one)}</pre></section>`)}
      ${context && !context.messages.length && html`<p class="empty">Nothing would be sent yet.</p>`}
    </div>
  </aside>`;
}

function said(message) {
  const { role, ...rest } = message;
  const keys = Object.keys(rest);
  if (keys.length === 1 && typeof rest.content === "string") return rest.content;
  return JSON.stringify(rest, null, 2);
}
