import { get } from "./api.js";
import { fromBase64, fromParam, show, toLink } from "./bytes.js";
import { empty, failed, fill, h, loading, table } from "./dom.js";
import { count, seconds } from "./format.js";

// leases lists the leases with their keys, or shows one.
export async function leases(main, param, signal) {
  const id = show(fromParam(param));
  const list = table("Leases", ["Lease", "#Left", "#+Granted", "Keys"], []);
  const state = h("div");
  fill(main, h("h1", null, id ? `Lease ${id}` : "Leases"), id && h("p", null, h("a", { href: "#/leases/" }, "All leases")), h("section", null, list, state));
  list.hidden = true;
  let after = "";
  let shown = 0;

  async function page() {
    fill(state, loading("leases"));
    try {
      const got = await get("leases", { id, after }, signal);
      list.add(got.leases.map(row));
      shown += got.leases.length;
      list.hidden = shown === 0;
      after = got.next ?? "";
      if (shown === 0) fill(state, empty("There are no leases."));
      else if (after) fill(state, empty(`${count(shown)} of ${count(got.count)} shown`), h("button", { type: "button", on: { click: page } }, "More"));
      else fill(state, empty(`${count(shown)} shown`));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(state, failed(error, page));
    }
  }
  await page();
}

function row(l) {
  const keys = l.keys.map((k) => h("a", { class: "mono", href: `#/key/${toLink(fromBase64(k))}` }, show(fromBase64(k))));
  const others = l.count - keys.length;
  return [
    h("a", { class: "mono id", href: `#/leases/${l.id}` }, l.id),
    l.error ? "" : l.ttl < 0 ? "ended" : seconds(l.ttl), l.error ? "" : seconds(l.granted_ttl),
    l.error ? h("span", { class: "bad" }, l.error) : l.count === 0 ? h("span", { class: "dim" }, "none")
      : h("ul", { class: "plain" }, keys.map((k) => h("li", null, k)), others > 0 && h("li", { class: "dim" }, `and ${count(others)} more`)),
  ];
}
