import { lines } from "./api.js";
import { fromBase64, fromParam, show, toLink } from "./bytes.js";
import { failed, fill, h } from "./dom.js";
import { count, size, time } from "./format.js";
import { crumbs } from "./keys.js";

const kept = 200; // changes that are shown

// watch shows the changes of a key, or of all keys that begin with a prefix, as they happen.
export async function watch(main, param, signal, _, query) {
  const subject = fromParam(param);
  const exact = query.get("exact") === "1";
  const state = h("p", { role: "status" }, "Connecting …");
  const problem = h("div");
  const list = h("div", { role: "log", "aria-label": "Changes, newest first", "aria-live": "off" });
  const pause = h("button", { type: "button", "aria-pressed": "false", on: { click: toggle } }, "Pause");
  const clear = h("button", { type: "button", on: { click: () => fill(list) } }, "Clear");
  fill(main, h("h1", { class: subject.length > 0 && "mono" }, `Watch ${subject.length > 0 ? show(subject) + (exact ? "" : "*") : "all keys"}`), crumbs(subject),
    h("section", null, problem, h("div", { class: "row group" }, pause, clear, state), list));

  let last = 0; // the newest revision that was shown, and the keys of it
  let seen = new Set();
  let stopping = null;
  let shown = 0;

  function toggle() {
    const paused = stopping !== null;
    pause.textContent = paused ? "Continue" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) {
      follow();
      return;
    }
    stopping.abort();
    stopping = null;
    state.textContent = "Paused. What changes meanwhile is shown after it.";
  }

  function take(e) {
    if (e.error) throw new Error(e.error);
    if (e.progress) {
      last = e.revision;
      seen = new Set();
      return;
    }
    if (!e.key) {
      last ||= e.revision;
      state.textContent = `Watching since revision ${last}`;
      return;
    }
    if (e.revision > last) {
      last = e.revision;
      seen = new Set();
    }
    if (seen.has(e.key)) return;
    seen.add(e.key);
    list.prepend(change(e));
    while (list.children.length > kept) list.lastChild.remove();
    shown++;
    state.textContent = `${count(shown)} change${shown === 1 ? "" : "s"}, the last at revision ${last}`;
  }

  // follow asks again whenever the server ends an answer, from the last revision on, of which some may be missing.
  async function follow() {
    stopping = new AbortController();
    const until = AbortSignal.any([signal, stopping.signal]);
    fill(problem);
    try {
      for (;;) await lines("watch", { key: param, prefix: exact ? 0 : 1, revision: seen.size > 0 ? last : last && last + 1 }, until, take);
    } catch (error) {
      if (until.aborted) return;
      if (error.status === 401) {
        dispatchEvent(new Event("hashchange")); // the page begins anew, with the login
        return;
      }
      stopping = null;
      state.textContent = "";
      pause.textContent = "Continue";
      fill(problem, failed(error, toggle));
      if (error.message.includes("compacted")) last = 0; // a new start is all that is left
    }
  }
  await follow();
}

function change(e) {
  const name = fromBase64(e.key);
  const facts = [e.kind, e.change === "deleted" ? null : size(e.bytes), e.lease && `lease ${e.lease}`].filter(Boolean);
  return h("article", { class: "version", "aria-label": `Revision ${e.revision}` },
    h("div", { class: "head" }, h("span", { class: `tag ${e.change}` }, e.change), h("a", { class: "mono", href: `#/key/${toLink(name)}?revision=${e.revision}` }, show(name)),
      time(e.time), h("span", { class: "dim" }, `revision ${e.revision}`), h("span", { class: "dim" }, facts.join(", "))),
    e.text ? h("details", null, h("summary", null, "Value"), h("pre", { tabindex: "0" }, e.text)) : null);
}
