import { get } from "./api.js";
import { fromBase64, toLink } from "./bytes.js";
import { range } from "./access.js";
import { empty, failed, fill, h, loading, table } from "./dom.js";
import { count } from "./format.js";

// watchers lists what clients watch on the node that is asked.
export async function watchers(main, _, signal) {
  const body = h("section", null, loading("watchers"));
  const title = h("h1", null, "Watchers of this node");
  fill(main, title, h("p", { class: "dim" }, "What clients, and members that follow it, watch on this node. The overview counts the watchers of all members. ",
    "Slow watchers read from the database what they missed."), body);

  async function load() {
    try {
      const got = await get("watchers", {}, signal);
      title.textContent = `Watchers of this node, ${got.node}`;
      const again = h("button", { type: "button", on: { click: load } }, "Refresh");
      const rows = got.ranges.map((w) => [
        h("a", { class: "mono", href: `#/${w.range_end ? "keys" : "key"}/${toLink(fromBase64(w.key))}` }, range(w)),
        count(w.watchers), w.slow > 0 ? h("span", { class: "bad" }, count(w.slow)) : "0",
      ]);
      fill(body, rows.length > 0 ? table("Watchers", ["Keys", "#Watchers", "#Slow"], rows) : empty("Nothing is watched."),
        got.count > rows.length && empty(`The first ${count(rows.length)} of ${count(got.count)}`), h("p", null, again));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(body, failed(error, load));
    }
  }
  await load();
}
