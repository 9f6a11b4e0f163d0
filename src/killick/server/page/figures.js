// Sessions, tokens, cost and interruptions over time, drawn as plain SVG.

import { api } from "./api.js";
import { attempt, html, IconButton, money, useEffect, useState } from "./base.js";
import { Lost } from "./session.js";
import { sideOpen } from "./sessions.js";

const DAYS = 30;
const day = (ago) => new Date(Date.now() - ago * 86400000).toISOString().slice(0, 10);
const short = (value) => (value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value % 1 ? value.toFixed(2) : String(value));

function ceiling(value, least) {
  if (value <= 0) return least;
  const size = 10 ** Math.floor(Math.log10(value));
  return Math.max(least, [1, 2, 4, 5, 10].map((one) => one * size).find((one) => one >= value));
}

function Plot({ title, days, series, format = short, least = 4 }) {
  const wide = 640, high = 200, left = 60, bottom = 30;
  const sums = days.map((_, at) => series.reduce((sum, one) => sum + one.values[at], 0));
  const top = ceiling(Math.max(...sums, 0), least);
  const step = (wide - left) / days.length;
  const y = (value) => (high - bottom) * (1 - value / top) + 4;
  const total = sums.reduce((one, other) => one + other, 0);
  const said = `${title}: ${format(total)} in ${days.length} days, at most ${format(Math.max(...sums, 0))} in one`;
  return html`<figure class="plot">
    <figcaption><span>${title}</span>${series.length > 1 ? html`<span class="legend">${series.map((one) => html`<span><i class=${one.look}></i>${one.name}</span>`)}</span>` : html`<small>${format(total)} in ${days.length} days</small>`}</figcaption>
    <svg viewBox=${`0 0 ${wide} ${high + 10}`} role="img" aria-label=${said}>
      ${[0, 0.5, 1].map((part) => html`<line class="grid" x1=${left} x2=${wide} y1=${y(top * part)} y2=${y(top * part)} /><text x=${left - 7} y=${y(top * part) + 4} text-anchor="end">${format(top * part)}</text>`)}
      ${days.map((name, at) => {
        let base = 0;
        return series.map((one) => {
          const value = one.values[at];
          const from = y(base + value);
          const to = y(base);
          base += value;
          return value ? html`<rect class=${`bar ${one.look}`} x=${left + at * step + step * 0.16} width=${step * 0.68} y=${from} height=${Math.max(1, to - from)} rx="2"><title>${`${name}: ${format(value)} ${one.name}`}</title></rect>` : null;
        });
      })}
      ${days.map((name, at) => (at % 7 === 1 ? html`<text x=${left + at * step + step / 2} y=${high + 6} text-anchor=${at > 27 ? "end" : "middle"}>${name.slice(5).replace("-", "/")}</text>` : null))}
    </svg>
  </figure>`;
}

export function Figures() {
  const [stats, setStats] = useState(null);
  useEffect(() => { attempt(async () => setStats(await api.stats(day(DAYS - 1)))); }, []);
  const days = Array.from({ length: DAYS }, (_, at) => day(DAYS - 1 - at));
  const activity = new Map(stats?.activity.map((one) => [one.day, one]));
  const usage = new Map(stats?.usage.map((one) => [one.day, one]));
  const pick = (from, field) => days.map((one) => from.get(one)?.[field] ?? 0);
  const sum = (values) => values.reduce((one, other) => one + other, 0);
  const turns = sum(pick(activity, "turns"));
  const broken = sum(pick(activity, "interrupted"));
  const priced = !stats?.models.length || stats.models.some((one) => one.cost !== null);
  return html`<main class="main" id="main" tabindex="-1"><${Lost} /><div class="figures" tabindex="0" role="region" aria-label="Figures"><div>
    <header><div><${IconButton} name="menu" label="Sessions" class="icon only-small" onClick=${() => { sideOpen.value = true; }} /><h1>The last ${DAYS} days</h1></div></header>
    ${stats && html`<div class="tiles">
      <div class="tile"><b>${short(sum(pick(activity, "sessions")))}</b><span>sessions</span></div>
      <div class="tile"><b>${short(turns)}</b><span>turns</span></div>
      <div class="tile"><b>${short(sum(pick(usage, "input")) + sum(pick(usage, "output")))}</b><span>tokens</span></div>
      <div class="tile"><b>${priced ? money(sum(pick(usage, "cost"))) : "–"}</b><span>${priced ? "cost" : "cost: not recorded"}</span></div>
      <div class="tile"><b>${turns ? Math.round((100 * broken) / turns) : 0}%</b><span>of turns interrupted</span></div>
    </div>
    <div class="plots">
      <${Plot} title="Sessions" days=${days} series=${[{ name: "sessions", look: "", values: pick(activity, "sessions") }]} />
      <${Plot} title="How turns ended" days=${days} series=${[{ name: "completed", look: "soft", values: pick(activity, "completed") }, { name: "interrupted", look: "b2", values: pick(activity, "interrupted") }, { name: "failed", look: "b3", values: pick(activity, "failed") }]} />
      <${Plot} title="Tokens" days=${days} series=${[{ name: "in", look: "soft", values: pick(usage, "input") }, { name: "out", look: "", values: pick(usage, "output") }]} />
      ${priced && html`<${Plot} title="Cost" days=${days} format=${money} least=${0.01} series=${[{ name: "", look: "", values: pick(usage, "cost") }]} />`}
      ${stats.models.length > 0 && html`<figure class="plot"><figcaption>Models</figcaption><div class="prose"><table><thead><tr><th>Model</th><th>Calls</th><th>Tokens in</th><th>Tokens out</th><th>Cost</th></tr></thead>
      <tbody>${stats.models.map((one) => html`<tr key=${one.day}><td>${one.day || "unnamed"}</td><td>${short(one.calls)}</td><td>${short(one.input)}</td><td>${short(one.output)}</td><td>${one.cost === null ? "unknown" : money(one.cost)}</td></tr>`)}</tbody></table></div></figure>`}
    </div>`}
  </div></div></main>`;
}
