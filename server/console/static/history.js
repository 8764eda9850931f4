import { get } from "./api.js";
import { empty, failed, fill, h, loading, put } from "./dom.js";
import { count, size } from "./format.js";

// history fills a section with the versions of a key, newest first.
export async function history(section, param, managed, signal) {
  const list = h("div");
  const state = h("div");
  fill(section, h("h2", null, "History"), list, state);
  let before = null;

  async function page() {
    fill(state, loading("the history"));
    try {
      const got = await get("history", { key: param, before, managed: managed ? 1 : null }, signal);
      put(list, got.versions.map(version));
      before = got.next;
      if (before) fill(state, h("button", { type: "button", on: { click: page } }, "Older versions"));
      else if (got.complete) fill(state);
      else fill(state, empty(ending(got, list)));
    } catch (error) {
      if (signal.aborted) return;
      fill(state, failed(error));
    }
  }
  await page();
}

function ending(got, list) {
  const none = list.children.length === 0;
  if (got.compact_revision > 0) {
    const at = count(got.compact_revision);
    return `${none ? `This key has not existed since revision ${at}. ` : ""}What was before revision ${at} is compacted.`;
  }
  return none ? "This key never existed." : "";
}

function version(v) {
  const facts = [v.type ?? v.kind, v.change === "deleted" ? null : size(v.bytes), v.lease ? `lease ${v.lease}` : null].filter(Boolean);
  return h("article", { class: "version", "aria-label": `Revision ${v.revision}` },
    h("div", { class: "head" },
      h("h3", null, `Revision ${count(v.revision)}`), h("span", { class: `tag ${v.change}` }, v.change),
      v.version ? h("span", { class: "dim" }, `version ${count(v.version)}`) : null, h("span", { class: "dim" }, facts.join(", "))),
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
  const lines = v.diff.hunks.map((hunk) => [
    h("div", { class: "at" }, `@@ ${hunk.from} → ${hunk.to}`),
    hunk.lines.map((l) => h("div", { class: l.op === "+" ? "add" : l.op === "-" ? "del" : null }, `${l.op} ${l.text}`)),
  ]);
  const body = v.diff.hunks.length > 0
    ? h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": `Changes of revision ${v.revision}` }, lines)
    : v.diff.note ? null : empty(unchanged(v));
  return [body, v.diff.note ? h("p", { class: "dim" }, v.diff.note) : null];
}
