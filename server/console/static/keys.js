import { get } from "./api.js";
import { fromBase64, fromParam, read, show, toLink, toParam } from "./bytes.js";
import { empty, failed, field, fill, h, loading, put } from "./dom.js";
import { count } from "./format.js";

// keys shows one level of the keys below a prefix.
export async function keys(main, param, signal, session) {
  const prefix = fromParam(param);
  const list = h("ul", { class: "keys" });
  const state = h("div");
  const input = h("input", { type: "search", value: show(prefix), spellcheck: "false", autocomplete: "off", name: "prefix" });
  const search = h("form", { class: "row", role: "search", on: { submit: (event) => {
    event.preventDefault();
    location.hash = `#/keys/${toLink(read(input.value))}`;
  } } }, field("Keys that begin with", input, "grow"), h("button", { type: "submit", class: "main" }, "Show"));
  const fresh = session.may_write ? h("a", { href: `#/new/${toLink(prefix)}` }, "New key") : null;
  fill(main, h("h1", null, "Keys"), search, crumbs(prefix), fresh && h("p", null, fresh), h("section", null, list, state));

  let after = "";
  async function page() {
    fill(state, loading("keys"));
    try {
      const got = await get("keys", { prefix: param, after }, signal);
      const first = list.children.length;
      put(list, got.keys.map((k) => item(k, prefix)));
      after = got.next ? toParam(fromBase64(got.next)) : "";
      if (list.children.length === 0) fill(state, empty(prefix.length > 0 ? "No key begins with this." : "There are no keys."));
      else if (after) fill(state, h("button", { type: "button", on: { click: page } }, "More"));
      else fill(state, h("p", { class: "empty" }, `${count(list.children.length)} shown, at revision ${count(got.revision)}`));
      if (first > 0) list.children[first]?.querySelector("a").focus();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(state, failed(error), permitted(session), h("button", { type: "button", on: { click: page } }, "Try again"));
    }
  }
  await page();
}

// permitted leads to what the user may read, when that is not all.
function permitted(session) {
  const readable = (session.permissions ?? []).filter((p) => p.type !== "write");
  if (readable.length === 0) return null;
  return h("p", null, "Your roles permit you to read: ", readable.map((p) => {
    const key = fromBase64(p.key);
    const single = !p.range_end;
    return [h("a", { class: "mono", href: `#/${single ? "key" : "keys"}/${toLink(key)}` }, show(key) || "(all)"), " "];
  }));
}

function item(k, prefix) {
  const name = fromBase64(k.name);
  const text = show(name.slice(prefix.lastIndexOf(0x2f) + 1)) || "(the prefix itself)";
  if (k.prefix) return h("li", null, h("a", { href: `#/keys/${toLink(name)}` }, text), h("span", { class: "aside" }, "▸"));
  return h("li", null, h("a", { href: `#/key/${toLink(name)}` }, text),
    h("span", { class: "aside", title: "revision of the last change" }, `rev ${count(k.mod_revision)}`));
}

// crumbs leads to the levels above.
export function crumbs(path) {
  const steps = [h("li", null, h("a", { href: "#/keys/" }, "all keys"))];
  let start = 0;
  for (let i = 0; i < path.length; i++) {
    if (path[i] !== 0x2f) continue;
    steps.push(h("li", null, " › ", h("a", { href: `#/keys/${toLink(path.slice(0, i + 1))}` }, show(path.slice(start, i + 1)))));
    start = i + 1;
  }
  if (start < path.length) steps.push(h("li", null, ` › ${show(path.slice(start))}`));
  return h("nav", { "aria-label": "Levels above" }, h("ol", { class: "crumbs" }, steps));
}
