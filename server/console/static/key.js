import { get } from "./api.js";
import { fromParam, show, toLink } from "./bytes.js";
import { failed, field, fill, h, loading, notice } from "./dom.js";
import { restoring } from "./edit.js";
import { count, seconds, size, time } from "./format.js";
import { compares, comparison, history } from "./history.js";
import { crumbs } from "./keys.js";
import { value } from "./value.js";

// key shows one key: its value in several forms, now or at a revision, where it came from, its history.
export async function key(main, param, signal, _, query) {
  const name = fromParam(param);
  const address = `#/key/${toLink(name)}`;
  const revision = query.get("revision");
  const shown = h("span", null, revision); // once it is known, what a time stands for
  const state = h("div");
  const detail = h("div", null, loading("the key"));
  const changes = h("section", { id: "history" }, h("h2", null, "History"));
  const compared = h("section", { id: "compare" });
  fill(main, h("h1", { class: "mono" }, show(name)), crumbs(name),
    h("nav", { class: "row actions", "aria-label": "Actions" }, h("a", { href: `#/watch/${toLink(name)}?exact=1` }, "Watch"), past(address)),
    revision && notice(["This is the key at revision ", shown, ". ", h("a", { href: address }, "Show it as it is now")]),
    compares(query) ? [compared, detail] : [detail, compared], state, changes); // what was asked for is at the top
  let managed = false;

  async function load() {
    try {
      const got = await get("key", { key: param, revision, managed: managed ? 1 : null }, signal);
      if (got.at && String(got.at) !== revision) fill(shown, `${got.at}, the last one of ${revision}`);
      fill(detail, got.found ? [facts(got), value(got, name, { param, revision, managed, toggle, done: reload })]
        : notice(revision ? "The key did not exist at this revision." : "This key does not exist. Its history may."));
      return got;
    } catch (error) {
      if (signal.aborted) return null;
      if (error.status === 401) throw error;
      fill(detail, failed(error, load));
    }
    return null;
  }

  function reload() {
    const loaded = load();
    const restorer = loaded.then((got) => got?.may_write && ((v, current) => restoring(v, name, current, state, reload)), () => null);
    return Promise.all([
      loaded, comparison(compared, param, address, query, managed, signal), history(changes, param, address, managed, signal, restorer),
    ]);
  }

  function toggle() {
    managed = !managed;
    return reload();
  }

  await reload();
}

// past is a form that shows the key as it was.
function past(address) {
  const at = h("input", { name: "at", required: true, placeholder: "10m", title: "A revision, a time like 2026-11-27T15:04:05Z, or how long ago, like 10m" });
  return h("form", { class: "row", on: { submit: (event) => {
    event.preventDefault();
    location.hash = `${address}?${new URLSearchParams({ revision: at.value })}`;
  } } }, field("At", at), h("button", { type: "submit" }, "Show"));
}

function facts(got) {
  const m = got.meta;
  const list = [
    ["Last change", [`revision ${m.mod_revision}`, m.time && ", ", time(m.time)]], ["Created", `revision ${m.create_revision}`],
    ["Version", count(m.version)], ["Value", size(got.value.bytes)],
    ["Kind", got.value.type ?? got.value.kind],
    ["Lease", got.lease ? [h("a", { class: "mono", href: `#/leases/${got.lease.id}` }, got.lease.id),
      `: ${got.lease.ttl < 0 ? "ended" : `${seconds(got.lease.ttl)} of ${seconds(got.lease.granted_ttl)} left`}`] : "none"],
  ];
  return h("section", null, h("h2", null, "Key"), h("dl", { class: "meta" },
    list.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))));
}
