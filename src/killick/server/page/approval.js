// A question to a person: everything that will run stands here, before it may.

import { html, useEffect, useRef, useState } from "./base.js";
import { exact, fieldsOf } from "./exact.js";

// Allow works once all of it was on the screen: it fits, or it was scrolled to its end, or expanded.
export function Ask({ tool, onDecide }) {
  const asked = tool.approval;
  const box = useRef(null);
  const [seen, setSeen] = useState(false);
  const [all, setAll] = useState(false);
  const [always, setAlways] = useState(false);
  const known = typeof asked.arguments === "string";
  const look = () => { const at = box.current; if (at && at.scrollTop + at.clientHeight >= at.scrollHeight - 2) setSeen(true); };
  useEffect(() => {
    if (!known) return undefined;
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [known, asked.arguments]);
  const fields = known && fieldsOf(asked.arguments);
  const may = known && (seen || all);
  const why = !known ? (asked.arguments === null ? "The arguments that were asked about are not in the journal; it can only be denied." : "One moment …") : may ? "" : "Scroll to the end, or show all of it, before you allow it.";
  const allow = () => { if (may) onDecide(tool, true, always); };
  const key = (event) => {
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "y" && may) { event.preventDefault(); allow(); }
    if (event.key === "n") { event.preventDefault(); onDecide(tool, false); }
  };
  return html`<div class="ask" role="group" tabindex="-1" onKeyDown=${key} aria-label=${`May ${tool.name} run?`}>
    <p>May <code class="exact">${exact(tool.name)}</code> run with exactly this?</p>
    ${known && html`<div class=${`whole ${all ? "all" : ""}`} ref=${box} tabindex="0" role="region" aria-label="What it would run with" onScroll=${look}>
      ${fields ? fields.map(([name, value]) => html`<p class="what exact">${exact(name)}</p><pre class="exact">${exact(value)}</pre>`) : html`<pre class="exact">${exact(asked.arguments) || "nothing"}</pre>`}
    </div>`}
    ${known && html`<label class="always"><input type="checkbox" checked=${always} onChange=${(event) => setAlways(event.target.checked)} />Always in this session, for exactly this call</label>`}
    <div class="push"><span role="status">${why}</span>
      ${known && !may && html`<button type="button" class="button small" onClick=${() => setAll(true)}>Show all</button>`}
      <button type="button" class="button small" onClick=${() => onDecide(tool, false)}>Deny</button>
      <button type="button" class="button small primary" disabled=${!may} onClick=${allow}>Allow</button></div>
  </div>`;
}
