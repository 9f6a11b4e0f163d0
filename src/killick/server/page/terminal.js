// What a program printed: colours as a terminal shows them, in pieces that cost nothing while they are out of sight.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./base.js";
import { cutUp } from "./conversation.js";

// Colours; and everything else that moves a cursor or names a window, which is left out.
const ESCAPES = /\x1b\[([\d;:]*)m|\x1b\[[\d;?<=>!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[()#%][\s\S]?|\x1b[@-Z\\-_a-z0-9=>]?|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]/g;

function turned(look, codes) {
  const now = { ...look };
  const list = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  for (let at = 0; at < list.length; at += 1) {
    const code = list[at];
    if (code === 0) { for (const name of Object.keys(now)) delete now[name]; }
    else if (code === 1) now.bold = 1;
    else if (code === 2) now.dim = 1;
    else if (code === 3) now.slant = 1;
    else if (code === 4) now.line = 1;
    else if (code === 7) now.turn = 1;
    else if (code === 22) { delete now.bold; delete now.dim; }
    else if (code === 23) delete now.slant;
    else if (code === 24) delete now.line;
    else if (code === 27) delete now.turn;
    else if (code === 39) delete now.ink;
    else if (code === 49) delete now.back;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) now.ink = code % 10;
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) now.back = code % 10;
    else if (code === 38 || code === 48) {
      // Of 256 or all colours, the nearest of eight.
      const many = list[at + 1] === 2;
      const value = many ? nearest(list.slice(at + 2, at + 5)) : list[at + 2] < 16 ? list[at + 2] % 8 : cube(list[at + 2]);
      at += many ? 4 : 2;
      if (value >= 0) now[code === 38 ? "ink" : "back"] = value;
    }
  }
  return now;
}
const nearest = ([red = 0, green = 0, blue = 0]) => (red > 110 ? 1 : 0) + (green > 110 ? 2 : 0) + (blue > 110 ? 4 : 0);
const cube = (code) => (code >= 232 || !(code >= 16) ? -1 : nearest([Math.floor((code - 16) / 36), Math.floor((code - 16) / 6) % 6, (code - 16) % 6].map((one) => one * 51)));

const classOf = (look) => Object.entries(look).map(([name, value]) => (name === "ink" ? `c${value}` : name === "back" ? `g${value}` : name)).join(" ");

// A line that is written over, as progress bars are, shows what was written last.
const overwritten = (text) => (text.includes("\r") ? text.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "").replace(/\r/g, "") : text);

function painted(text, look) {
  const pieces = [];
  let from = 0;
  let now = look;
  const put = (to) => {
    if (to <= from) return;
    const name = classOf(now);
    const words = text.slice(from, to);
    pieces.push(name ? html`<span class=${name}>${words}</span>` : words);
  };
  for (const found of text.matchAll(ESCAPES)) {
    put(found.index);
    if (found[1] !== undefined) now = turned(now, found[1]);
    from = found.index + found[0].length;
  }
  put(text.length);
  return pieces;
}

function endOf(text, look) {
  let now = look;
  for (const found of text.matchAll(/\x1b\[([\d;:]*)m/g)) now = turned(now, found[1]);
  return now;
}

const Piece = ({ text, look }) => html`<span class="piece">${painted(overwritten(text), look)}</span>`;

const size = (count) => (count >= 1e6 ? `${(count / 1e6).toFixed(1)} MB` : `${Math.max(1, Math.round(count / 1e3))} KB`);

// Pieces that one frame can draw.
const STEP = 4;

// `text` is what is known here, `total` how many characters there are; the rest is read when it is asked for.
export function Terminal({ text, from = 0, total = 0, live, keep = "end", onAll, command }) {
  const box = useRef(null);
  const low = useRef(true);
  const [all, setAll] = useState(null);
  const [count, setCount] = useState(STEP);
  const missing = all === null ? total - text.length : 0;
  // Of what was cut off at its beginning the first line is no whole one.
  const cut = keep === "end" && missing > 64 && !live ? text.indexOf("\n") + 1 : 0;
  const pieces = useMemo(() => cutUp(all ?? text.slice(cut)), [all, text, cut]);
  const places = useMemo(() => { let at = all === null ? from + cut : 0; return pieces.map((one) => { const here = at; at += one.length; return here; }); }, [pieces, from]);
  const drawn = useRef(new Map());
  const shown = all === null ? pieces.length : Math.min(count, pieces.length);
  // A piece that stays as it is is drawn once, and never compared again.
  const painting = useMemo(() => {
    let look = {};
    const known = new Map();
    for (const [number, one] of pieces.slice(0, shown).entries()) {
      const begins = classOf(look);
      const old = drawn.current.get(places[number]);
      const now = old?.text === one && old.begins === begins ? old : { text: one, begins, ends: endOf(one, look), piece: html`<${Piece} key=${places[number]} text=${one} look=${look} />` };
      known.set(places[number], now);
      look = now.ends;
    }
    drawn.current = known;
    return [...known.values()].map((one) => one.piece);
  }, [pieces, places, shown]);
  // A long text is put on the page over several frames.
  useEffect(() => {
    if (all === null || count >= pieces.length) return undefined;
    const frame = requestAnimationFrame(() => setCount(count + STEP));
    return () => cancelAnimationFrame(frame);
  }, [all, count, pieces]);
  useLayoutEffect(() => { if (keep === "end" && all === null && low.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [text, all]);
  const rest = missing > 64 && html`<p class="rest"><span>${keep === "end" ? "The last" : "The first"} ${size(text.length)} of ${size(total)}</span>${!live && onAll && html`<button type="button" class="button small" onClick=${async () => { const whole = await onAll(); if (typeof whole === "string") setAll(whole); }}>Show all</button>`}</p>`;
  return html`${keep === "end" && rest}<pre class=${`terminal ${command || text.includes("\x1b[") ? "" : "plain"}`} ref=${box} tabindex="0" onScroll=${() => { const at = box.current; low.current = at.scrollTop + at.clientHeight >= at.scrollHeight - 20; }}>${command && html`<span class="command">${command}</span>`}${painting}</pre>${keep !== "end" && rest}`;
}
