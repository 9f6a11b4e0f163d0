// Text as it will be run: every character that could be overlooked, or that reorders others, has a mark in its place.

import { html } from "./base.js";

const MARKS = { " ": "·", "\t": "→\t", "\n": "⏎\n" };
// Controls, spaces other than the plain one, what has no width, what changes direction, what is not assigned to be seen.
const HIDDEN = /[\p{Cc}\p{Cf}\p{DI}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u115f\u1160\u3164\uffa0\u2800\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;
// A lone space between two words needs no mark; a run of them, or one at an edge of a line, does.
const PIECES = new RegExp(`(?<spaces> {2,}|^ +| +$| +(?=\\n)|(?<=\\n) +)|(?<hidden>${HIDDEN.source})`, "gmu");

const code = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

export function exact(text) {
  const made = [];
  let from = 0;
  for (const match of text.matchAll(PIECES)) {
    made.push(text.slice(from, match.index));
    const [found] = match;
    const mark = match.groups.spaces ? MARKS[" "].repeat(found.length) : MARKS[found] ?? code(found);
    made.push(html`<span class=${match.groups.hidden && !MARKS[found] ? "mark odd" : "mark"}>${mark}</span>`);
    from = match.index + found.length;
  }
  made.push(text.slice(from));
  return made;
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
// All but what is in quotes: that may be escaped in more than one way.
const tokens = (text) => text.match(TOKENS)?.map((token) => (token[0] === '"' ? '"' : token)).join(" ");

// The fields of an object with the text of each; null when that would leave something out or change it, as with a name that occurs twice or a number with more digits than are kept here.
export function fieldsOf(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object" || Array.isArray(value) || tokens(text) !== tokens(JSON.stringify(value))) return null;
    return Object.entries(value).map(([name, one]) => [name, typeof one === "string" ? one : JSON.stringify(one, null, 2)]);
  } catch {
    return null;
  }
}
