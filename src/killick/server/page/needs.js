// What waits for a person, in all sessions: questions, unknown outcomes, turns that broke off, pauses, limits.

import { api, followNews } from "./api.js";
import { computed, signal, titleOf } from "./base.js";

export const waiting = signal([]);
export const count = signal(0);
export const told = signal(false);
const seen = new Set();

export const nameOf = (line) => `${line.session.id}/${line.seq}/${line.kind}`;
export const WORDS = { approval_asked: "May it run?", outcome_unknown: "Did it run?", turn_ended: "It broke off", limit_reached: "A limit is reached", attempts_used_up: "All attempts are used up", paused: "It is paused" };
const URGENT = new Set(["approval_asked", "outcome_unknown", "limit_reached"]);

// The one thing for each turn that says most: an unknown outcome says also that it broke off.
export const lines = computed(() => waiting.value.filter((line) => line.kind !== "turn_ended" || !waiting.value.some((other) => other !== line && other.session.id === line.session.id && other.seq === line.seq)));

// Sessions whose running turn has asked something.
export const questions = computed(() => new Set(waiting.value.filter((line) => line.kind === "approval_asked").map((line) => line.session.id)));

function notify(line) {
  if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  const note = new Notification(WORDS[line.kind] ?? "Killick", { body: titleOf(line.session), tag: nameOf(line), icon: "/assets/icon.svg" });
  note.onclick = () => { window.focus(); note.close(); };
}

let timer = 0;
export async function look() {
  clearTimeout(timer);
  const found = await api.waiting().catch(() => null);
  if (!found) return;
  const anew = found.waiting.filter((line) => !seen.has(nameOf(line)));
  for (const line of anew) { seen.add(nameOf(line)); if (told.value && URGENT.has(line.kind)) notify(line); }
  waiting.value = found.waiting;
  count.value = lines.value.length;
  told.value = true;
}
const soon = () => { clearTimeout(timer); timer = setTimeout(look, 250); };

// The feed says that something has changed; what waits is then read anew.
export function watch() {
  let stop = () => {};
  const start = () => { stop = followNews({ onEvent: soon, onReload: () => setTimeout(() => { stop(); start(); }, 1000), onState: (state) => { if (state === "live") soon(); } }); };
  start();
  const every = setInterval(() => { if (!document.hidden) look(); }, 15000);
  return () => { stop(); clearInterval(every); };
}
