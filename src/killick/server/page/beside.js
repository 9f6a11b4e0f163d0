// Two sessions that began alike, side by side from where they part.

import { api } from "./api.js";
import { address, attempt, follows, go, html, IconButton, lasting, money, shortCount, titleOf, useEffect, useState } from "./base.js";
import { KEPT, textOf } from "./conversation.js";
import { differing, stateOf } from "./tools.js";

// Words that only one of two texts has, marked; long texts are shown as they are.
function Words({ text, other }) {
  if (other === undefined || text.length + other.length > 20000) return html`<div class="words">${text}</div>`;
  const cut = (one) => one.split(/(\s+)/);
  return html`<div class="words">${differing(cut(other), cut(text)).filter(([mark]) => mark !== "-").map(([mark, word]) => (mark === "+" && word.trim() ? html`<mark>${word}</mark>` : word))}</div>`;
}

function Side({ name, session, shown, turns, twin, parted }) {
  const path = address(session.id);
  const usage = turns.reduce((sum, turn) => ({ tokens: sum.tokens + (turn.usage?.input ?? 0) + (turn.usage?.output ?? 0), cost: sum.cost + (turn.usage?.cost ?? 0), ms: sum.ms + (turn.ended_at ? new Date(turn.ended_at) - new Date(turn.started_at) : 0) }), { tokens: 0, cost: 0, ms: 0 });
  const tools = shown.flatMap((one) => one.tools);
  return html`<section aria-label=${name}><header><b>${name}</b><a href=${path} onClick=${(event) => follows(event, path)}>${titleOf(session)}</a>
      <p class="proof">${turns.length} ${turns.length === 1 ? "turn" : "turns"} since #${parted}${usage.ms ? ` · ${lasting(usage.ms)}` : ""}${usage.tokens ? ` · ${shortCount(usage.tokens)} tokens` : ""}${usage.cost ? ` · ${money(usage.cost)}` : ""}${tools.length ? ` · ${tools.length} ${tools.length === 1 ? "tool" : "tools"}` : ""}</p></header>
    ${shown.map((one, at) => html`<article class=${`message ${one.role}`} key=${one.seq}>${one.kind === "ending" ? html`<div class=${`ending ${one.status}`}>${one.words}</div>` : html`<${Words} text=${textOf(one.parts)} other=${twin[at]?.role === one.role && twin[at]?.kind === one.kind ? textOf(twin[at].parts) : undefined} />`}
      ${one.tools.map((tool) => html`<p class="tool-line"><code>${tool.name}</code><span class=${`state ${stateOf(tool, true).state.replace(/ .*/, "")}`}>${stateOf(tool, true).words}</span></p>`)}</article>`)}
    ${!shown.length && html`<p class="empty">Nothing was said since.</p>`}</section>`;
}

// Forks of one session, and forks of those.
function Branch({ session, here, depth = 0 }) {
  const [forks, setForks] = useState([]);
  useEffect(() => { attempt(async () => setForks((await api.sessions({ fork_of: session.id, archived: "all", limit: 100 })).sessions)); }, [session.id]);
  const path = address(session.id);
  return html`<li><a href=${path} aria-current=${here.includes(session.id) ? "true" : null} onClick=${(event) => follows(event, path)}>${titleOf(session)}</a>${session.fork && html` <small>at #${session.fork.at}</small>`}
    ${forks.length > 0 && depth < 12 && html`<ul>${forks.map((one) => html`<${Branch} key=${one.id} session=${one} here=${here} depth=${depth + 1} />`)}</ul>`}</li>`;
}

export function Beside({ id, other, session }) {
  const [both, setBoth] = useState(null);
  useEffect(() => {
    let gone = false;
    attempt(async () => {
      const [origin, mine, theirs] = await Promise.all([api.session(other), api.transcript(id, { text: KEPT }), api.transcript(other, { text: KEPT })]);
      let root = origin.session;
      for (let up = 0; root.fork && up < 20; up += 1) root = (await api.session(root.fork.session_id)).session;
      if (!gone) setBoth({ origin: origin.session, mine, theirs, root });
    });
    return () => { gone = true; };
  }, [id, other]);
  if (!both) return null;
  const at = session.fork?.session_id === other ? session.fork.at : 0;
  const after = (transcript) => ({ shown: transcript.shown.filter((one) => one.seq > at), turns: transcript.turns.filter((one) => one.seq > at) });
  const [mine, theirs] = [after(both.mine), after(both.theirs)];
  return html`<header class="head"><${IconButton} name="left" label="Back to the session" onClick=${() => go(address(id))} /><div class="title"><h1>Two branches</h1><div class="meta"><span>They are the same up to #${at}</span></div></div></header>
    <div class="beside" tabindex="0" role="region" aria-label="Two branches">
      <details class="fold tree-of"><summary>All branches</summary><div><ul><${Branch} session=${both.root} here=${[id, other]} /></ul></div></details>
      <div class="pair"><${Side} name="Its origin" session=${both.origin} ...${theirs} twin=${mine.shown} parted=${at} /><${Side} name="The fork" session=${session} ...${mine} twin=${theirs.shown} parted=${at} /></div>
    </div>`;
}
