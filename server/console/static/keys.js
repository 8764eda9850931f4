import { get } from "./api.js";
import { fromBase64, fromParam, read, show, toLink, toParam } from "./bytes.js";
import { empty, failed, field, fill, h, loading, table } from "./dom.js";
import { count, size } from "./format.js";

const columns = ["Name", "Kind", "#Size", "+Lease", "#+Revision"];

// keys shows one level of the keys below a prefix, or all below it that have a text in them.
export async function keys(main, param, signal, session, query) {
  const prefix = fromParam(param);
  const text = query.get("search");
  const input = h("input", { type: "search", value: show(prefix), spellcheck: "false", autocomplete: "off", name: "prefix" });
  const wanted = h("input", { type: "search", value: text ?? "", spellcheck: "false", autocomplete: "off", name: "search" });
  const form = h("form", { class: "row", role: "search", on: { submit: (event) => {
    event.preventDefault();
    const search = wanted.value ? `?${new URLSearchParams({ search: wanted.value })}` : "";
    location.hash = `#/keys/${toLink(read(input.value))}${search}`;
  } } }, field("Keys that begin with", input, "grow"), field("and have in them", wanted, "grow"), h("button", { type: "submit", class: "main" }, "Show"));
  const at = toLink(prefix);
  const actions = h("nav", { class: "row actions", "aria-label": "Actions" },
    h("a", { href: `#/watch/${at}` }, "Watch"),
    session.may_write && h("a", { href: `#/new/${at}` }, "New key"),
    session.may_write && prefix.length > 0 && h("a", { href: `#/delete/${at}` }, "Delete all"));
  const section = h("section");
  fill(main, h("h1", null, "Keys"), form, crumbs(prefix), actions, section);
  if (text) await found(section, param, text, signal, session);
  else await level(section, param, prefix, signal, session);
}

// level lists one level of keys, page by page.
async function level(section, param, prefix, signal, session) {
  const list = table("Keys", columns, []);
  const state = h("div");
  const rows = new Map(); // by name in base64
  fill(section, list, state);
  list.hidden = true;

  let after = "";
  async function page() {
    fill(state, loading("keys"));
    try {
      const asked = { prefix: param, after };
      const got = await get("keys", asked, signal);
      const first = rows.size;
      for (const k of got.keys) rows.set(k.name, row(k, prefix));
      const added = [...rows.values()].slice(first);
      list.add(added.map((r) => r.cells));
      list.hidden = rows.size === 0;
      after = got.next ? toParam(fromBase64(got.next)) : "";
      if (rows.size === 0) fill(state, empty(prefix.length > 0 ? "No key begins with this." : "There are no keys."));
      else if (after) fill(state, h("button", { type: "button", on: { click: page } }, "More"));
      else fill(state, empty(`${count(rows.size)} shown, at revision ${got.revision}`));
      if (first > 0) added[0]?.link.focus();
      await details(asked, rows, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(state, permitted(session), failed(error, page));
    }
  }
  await page();
}

// details adds what takes longer than to list: kinds, sizes, and how many keys there are below a prefix.
async function details(asked, rows, signal) {
  let got;
  try {
    got = await get("keys", { ...asked, details: 1 }, signal);
  } catch {
    return; // the list is of use without them
  }
  for (const k of got.keys) {
    const r = rows.get(k.name);
    if (!r) continue;
    if (k.count) r.size.textContent = `${count(k.count)} key${k.count === 1 ? "" : "s"}`;
    else if (k.bytes !== undefined) r.size.textContent = size(k.bytes);
    r.kind.textContent = k.kind ?? "";
  }
}

// found lists the keys that have a text in them. A request looks at keys for some seconds; the next one goes on there.
async function found(section, param, text, signal, session) {
  const list = table("Keys", ["Name", "+Lease", "#Revision"], []);
  const state = h("div");
  fill(section, list, state);
  list.hidden = true;
  let after = "";
  let scanned = 0;
  let shown = 0;

  async function page() {
    const stopping = new AbortController();
    const stop = h("button", { type: "button", on: { click: () => stopping.abort() } }, "Stop");
    const more = () => h("button", { type: "button", on: { click: page } }, "Search on");
    const looked = () => `${count(shown)} found among ${count(scanned)} keys`;
    const first = shown;
    try {
      do {
        fill(state, loading(`keys: ${looked()}`), stop);
        const got = await get("search", { prefix: param, text: toParam(read(text)), after }, AbortSignal.any([signal, stopping.signal]));
        list.add(got.keys.map((k) => {
          const name = fromBase64(k.name);
          return [h("a", { class: "mono", href: `#/key/${toLink(name)}` }, show(name)), lease(k), k.mod_revision];
        }));
        shown += got.keys.length;
        scanned += got.scanned;
        after = got.next ? toParam(fromBase64(got.next)) : "";
        list.hidden = shown === 0;
      } while (after && shown === first);
      fill(state, empty(after ? `${looked()} so far.` : `${looked()}.`), after && more());
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      if (stopping.signal.aborted) fill(state, empty(`Stopped: ${looked()}.`), more());
      else fill(state, permitted(session), failed(error, page));
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

const lease = (k) => (k.lease ? h("a", { class: "mono", href: `#/leases/${k.lease}` }, k.lease) : null);

// row is the row of a key or of a prefix. What details adds has its own elements.
function row(k, prefix) {
  const name = fromBase64(k.name);
  const text = show(name.slice(prefix.lastIndexOf(0x2f) + 1)) || "(the prefix itself)";
  const link = h("a", { class: "mono", href: `#/${k.prefix ? "keys" : "key"}/${toLink(name)}` }, text);
  const kind = h("span");
  const bytes = h("span");
  return { link, kind, size: bytes, cells: [link, kind, bytes, lease(k), k.prefix ? null : k.mod_revision] };
}

// crumbs leads to the levels above.
export function crumbs(path) {
  const steps = [h("li", null, h("a", { href: "#/keys/" }, "all keys"))];
  let start = 0;
  for (let i = 0; i < path.length; i++) {
    if (path[i] !== 0x2f) continue;
    steps.push(h("li", null, h("a", { href: `#/keys/${toLink(path.slice(0, i + 1))}` }, show(path.slice(start, i + 1)))));
    start = i + 1;
  }
  if (start < path.length) steps.push(h("li", null, show(path.slice(start))));
  return h("nav", { "aria-label": "Levels above" }, h("ol", { class: "crumbs" }, steps));
}
