import { get } from "./api.js";
import { empty, failed, fill, h, loading, table } from "./dom.js";

// doctor examines the database when it is asked to, as `sqlbrain doctor` does.
export async function doctor(main, _, signal) {
  const result = h("div", null, empty("Not examined yet."));
  const start = h("button", { type: "button", class: "main", on: { click: examine } }, "Examine");
  fill(main, h("h1", null, "Doctor"), h("section", null,
    h("p", { class: "dim" }, "Can sqlbrain live on its database, and is the data safe there? These are the checks of sqlbrain doctor, made from this node. Nothing is changed."),
    h("div", { class: "row" }, start), result));

  async function examine() {
    start.disabled = true;
    fill(result, loading("what the database answers"));
    try {
      draw(await get("doctor", {}, signal));
    } catch (error) {
      if (signal.aborted) return;
      fill(result, failed(error));
    }
    start.disabled = false;
  }

  function draw(got) {
    const of = (status) => got.findings.filter((f) => f.status === status).length;
    fill(result, h("p", { role: "status" }, `${got.findings.length} checks: ${of("ok")} ok, ${of("warn")} warnings, ${of("fail")} failed.`),
      table("Findings", ["Status", "Check", "Found"], got.findings.map((f) => [
        h("span", { class: { ok: "good", warn: "warn", fail: "bad" }[f.status] }, f.status), f.check,
        [h("div", { class: "found" }, f.detail), f.advice ? h("div", { class: "dim" }, `→ ${f.advice}`) : null],
      ])));
  }
}
