import { get } from "./api.js";
import { empty, failed, fill, h, loading, notice, table } from "./dom.js";
import { count, size } from "./format.js";
import { fromBase64, show, toLink } from "./bytes.js";
import { bar } from "./spark.js";

// sizes is a section that counts keys and bytes by prefix when it is asked to.
export function sizes(signal) {
  const result = h("div", null, empty("Not counted yet. Counting reads all current keys once."));
  let running = null;
  const start = h("button", { type: "button", on: { click: run } }, "Count");
  const stop = h("button", { type: "button", disabled: true, on: { click: () => running?.abort() } }, "Cancel");

  async function run() {
    running = new AbortController();
    start.disabled = true;
    stop.disabled = false;
    fill(result, loading("all keys"));
    try {
      draw(result, await get("sizes", {}, AbortSignal.any([running.signal, signal])));
    } catch (error) {
      if (signal.aborted) return;
      fill(result, running.signal.aborted ? empty("Cancelled.") : failed(error));
    }
    start.disabled = false;
    stop.disabled = true;
  }

  return h("section", { id: "sizes" }, h("h2", null, "Size by prefix"), h("div", { class: "row" }, start, stop), result);
}

function draw(result, s) {
  if (s.keys === 0) return fill(result, empty("There are no keys."));
  const rows = s.groups.map((g) => {
    const prefix = fromBase64(g.prefix);
    const text = show(prefix);
    return [
      text === "(others)" ? text : h("a", { class: "mono", href: `#/keys/${toLink(prefix)}` }, text || "(no path)"),
      count(g.keys), size(g.bytes), bar(g.bytes / Math.max(s.bytes, 1)),
    ];
  });
  return fill(result,
    s.complete ? null : notice(`The count ended early, at ${show(fromBase64(s.reached))}.`),
    h("p", { class: "dim" }, `${count(s.keys)} keys, ${size(s.bytes)} in keys and current values`),
    table("Size by prefix", ["Prefix", "#Keys", "#Bytes", "+"], rows));
}
