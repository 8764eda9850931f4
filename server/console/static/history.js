import { get } from "./api.js";
import { empty, failed, field, fill, h, loading, put } from "./dom.js";
import { count, size, time } from "./format.js";

// comparison fills a section with what changed in a key between two revisions, the parameters from and to of the
// address; without one, the current revision is meant.
export async function comparison(section, param, address, query, managed, signal) {
  const from = number("from", query.get("from"));
  const to = number("to", query.get("to"));
  const form = h("form", { class: "row", on: { submit: (event) => {
    event.preventDefault();
    const hash = `${address}?${new URLSearchParams({ from: from.value, to: to.value })}`;
    if (location.hash === hash) dispatchEvent(new Event("hashchange")); // the current revision may be another by now
    else location.hash = hash;
  } } }, field("From revision", from), field("to revision", to), h("button", { type: "submit" }, "Compare"));
  const result = h("div");
  fill(section, h("h2", null, "Compare"), form, result);
  if (!compares(query)) return;

  async function load() {
    fill(result, loading("the comparison"));
    try {
      const got = await get("compare", { key: param, from: from.value, to: to.value, managed: managed ? 1 : null }, signal);
      const side = (v) => (v.found ? `version ${count(v.version)}, written at revision ${v.mod_revision}, ${size(v.bytes)}` : "the key does not exist");
      fill(result, h("dl", { class: "sides" }, h("dt", null, `Revision ${got.from.revision}`), h("dd", null, side(got.from)),
        h("dt", null, `Revision ${got.to.revision}`), h("dd", null, side(got.to))), summary(got.diff),
      lines(got.diff, "Changes between the revisions", got.same ? "There is no difference." : "Only what is not shown here differs."));
    } catch (error) {
      if (signal.aborted) return;
      fill(result, failed(error, load));
    }
  }
  await load();
}

// summary says how many lines differ, also to screen readers.
function summary(diff) {
  const of = (op) => diff.hunks.reduce((sum, hunk) => sum + hunk.lines.filter((l) => l.op === op).length, 0);
  return diff.hunks.length > 0 && h("p", { role: "status" }, `Lines removed: ${count(of("-"))}, added: ${count(of("+"))}`);
}

// compares reports whether an address is that of a comparison.
export const compares = (query) => query.has("from") || query.has("to");

const number = (name, value) => h("input", { name, value, placeholder: "now", title: "A revision, a time like 2026-11-27T15:04:05Z, or how long ago, like 10m" });

// history fills a section with the versions of a key, newest first. restoring
// is a promise of what makes the button that gives the key the value of one, if the key still is at a revision, 0 if it
// was deleted; of nothing, if the user may not.
export async function history(section, param, address, managed, signal, restoring) {
  const list = h("div");
  const state = h("div");
  fill(section, h("h2", null, "History"), list, state);
  let before = null;
  let current = null; // the mod revision of the key as it is shown, 0 if it was deleted

  async function page() {
    fill(state, loading("the history"));
    try {
      const got = await get("history", { key: param, before, managed: managed ? 1 : null }, signal);
      const [newest] = got.versions;
      if (newest) current ??= newest.change === "deleted" ? 0 : newest.revision;
      const button = await restoring;
      const older = (v) => button && v.change !== "deleted" && v.revision !== current;
      put(list, got.versions.map((v) => version(v, address, older(v) && button(v, current))));
      before = got.next;
      if (before) fill(state, h("button", { type: "button", on: { click: page } }, "Older versions"));
      else if (got.complete) fill(state);
      else fill(state, empty(ending(got, list)));
    } catch (error) {
      if (signal.aborted) return;
      fill(state, failed(error, page));
    }
  }
  await page();
}

function ending(got, list) {
  const none = list.children.length === 0;
  if (got.compact_revision > 0) {
    const at = got.compact_revision;
    return `${none ? `This key has not existed since revision ${at}. ` : ""}What was before revision ${at} is compacted.`;
  }
  return none ? "This key never existed." : "";
}

function version(v, address, restore) {
  const facts = [v.type ?? v.kind, v.change === "deleted" ? null : size(v.bytes), v.lease ? `lease ${v.lease}` : null].filter(Boolean);
  return h("article", { class: "version", "aria-label": `Revision ${v.revision}` },
    h("div", { class: "head" },
      h("h3", null, `Revision ${v.revision}`), h("span", { class: `tag ${v.change}` }, v.change), time(v.time),
      v.version ? h("span", { class: "dim" }, `version ${count(v.version)}`) : null, facts.length > 0 && h("span", { class: "dim" }, facts.join(", ")),
      v.change !== "deleted" && h("a", { href: `${address}?revision=${v.revision}`, "aria-label": `Show revision ${v.revision}` }, "Show"),
      h("a", { href: `${address}?from=${v.revision}&to=`, "aria-label": `Compare with now: revision ${v.revision}` }, "Compare with now"), restore),
    v.note ? h("p", { class: "dim" }, v.note) : null,
    diff(v));
}

// unchanged says why a version without differences has none.
function unchanged(v) {
  if (v.change === "created") return "Created with an empty value.";
  if (v.change === "deleted") return "The deleted value was empty.";
  return v.same ? "The same value was written again." : "Only what is not shown here has changed.";
}

function diff(v) {
  if (!v.diff) return empty("The version before is compacted.");
  return lines(v.diff, `Changes of revision ${v.revision}`, unchanged(v));
}

// lines shows a comparison, or why it has no lines.
export function lines(diff, label, none) {
  const rows = diff.hunks.map((hunk) => [
    h("div", { class: "at" }, `@@ ${hunk.from} → ${hunk.to}`),
    hunk.lines.map((l) => h("div", { class: l.op === "+" ? "add" : l.op === "-" ? "del" : null }, `${l.op} ${l.text}`)),
  ]);
  const body = diff.hunks.length > 0
    ? h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": label }, rows)
    : diff.note ? null : empty(none);
  return [body, diff.note ? h("p", { class: "dim" }, diff.note) : null];
}
