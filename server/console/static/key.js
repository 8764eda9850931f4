import { get } from "./api.js";
import { fromParam, show } from "./bytes.js";
import { empty, failed, fill, h, loading, notice } from "./dom.js";
import { editor } from "./edit.js";
import { count, seconds, size } from "./format.js";
import { history } from "./history.js";
import { crumbs } from "./keys.js";

// key shows one key: its value in several forms, where it came from, its history.
export async function key(main, param, signal) {
  const name = fromParam(param);
  const detail = h("div", null, loading("the key"));
  const changes = h("section", { id: "history" }, h("h2", null, "History"));
  fill(main, h("h1", { class: "mono" }, show(name)), crumbs(name), detail, changes);
  let managed = false;

  async function load() {
    try {
      const got = await get("key", { key: param, managed: managed ? 1 : null }, signal);
      fill(detail, got.found
        ? [facts(got), value(got.value, managed, toggle), got.may_write ? editor(got, name, reload) : null]
        : notice("This key does not exist. Its history may."));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(detail, failed(error));
    }
  }

  const reload = () => Promise.all([load(), history(changes, param, managed, signal)]);

  function toggle() {
    managed = !managed;
    return reload();
  }

  await reload();
}

function facts(got) {
  const m = got.meta;
  const list = [
    ["Last change", `revision ${count(m.mod_revision)}`], ["Created", `revision ${count(m.create_revision)}`],
    ["Version", count(m.version)], ["Value", size(got.value.bytes)],
    ["Kind", got.value.type ?? got.value.kind],
    ["Lease", got.lease ? `${got.lease.id}: ${got.lease.ttl < 0 ? "ended" : `${seconds(got.lease.ttl)} of ${seconds(got.lease.granted_ttl)} left`}` : "none"],
  ];
  return h("section", null, h("h2", null, "Key"), h("dl", { class: "meta" },
    list.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))));
}

function value(v, managed, toggle) {
  const forms = [["Readable", v.readable], ["Text", v.text], ["Hex", v.hex]].filter(([, text]) => text);
  const shown = h("pre", { tabindex: "0", id: "value" });
  const tabs = forms.map(([name, text]) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => choose(name, text) } }, name));
  function choose(name, text) {
    fill(shown, text);
    for (const t of tabs) t.setAttribute("aria-pressed", String(t.textContent === name));
  }
  if (forms.length > 0) choose(...forms[0]);
  const managedButton = v.kind === "kubernetes" && v.readable
    ? h("button", { type: "button", "aria-pressed": String(managed), on: { click: toggle } }, "Managed fields") : null;
  return h("section", null, h("h2", null, "Value"), v.note ? h("p", { class: "dim" }, v.note) : null,
    h("div", { class: "row", role: "group", "aria-label": "Form of the value" }, tabs, managedButton),
    forms.length > 0 ? shown : empty(v.bytes === 0 ? "The value is empty." : "Nothing of it can be shown."));
}
