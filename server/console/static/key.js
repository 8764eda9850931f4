import { get } from "./api.js";
import { fromParam, show, toLink } from "./bytes.js";
import { failed, fill, h, loading, notice } from "./dom.js";
import { count, seconds, size } from "./format.js";
import { compares, comparison, history } from "./history.js";
import { crumbs } from "./keys.js";
import { value } from "./value.js";

// key shows one key: its value in several forms, now or at a revision, where it came from, its history.
export async function key(main, param, signal, _, query) {
  const name = fromParam(param);
  const address = `#/key/${toLink(name)}`;
  const revision = query.get("revision");
  const detail = h("div", null, loading("the key"));
  const changes = h("section", { id: "history" }, h("h2", null, "History"));
  const compared = h("section", { id: "compare" });
  fill(main, h("h1", { class: "mono" }, show(name)), crumbs(name),
    h("nav", { class: "row actions", "aria-label": "Actions" }, h("a", { href: `#/watch/${toLink(name)}?exact=1` }, "Watch")),
    revision && notice([`This is the key at revision ${revision}. `, h("a", { href: address }, "Show it as it is now")]),
    compares(query) ? [compared, detail] : [detail, compared], changes); // what was asked for is at the top
  let managed = false;

  async function load() {
    try {
      const got = await get("key", { key: param, revision, managed: managed ? 1 : null }, signal);
      fill(detail, got.found ? [facts(got), value(got, name, { param, revision, managed, toggle, done: reload })]
        : notice(revision ? "The key did not exist at this revision." : "This key does not exist. Its history may."));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(detail, failed(error, load));
    }
  }

  const reload = () => Promise.all([
    load(), comparison(compared, param, address, query, managed, signal), history(changes, param, address, managed, signal),
  ]);

  function toggle() {
    managed = !managed;
    return reload();
  }

  await reload();
}

function facts(got) {
  const m = got.meta;
  const list = [
    ["Last change", `revision ${m.mod_revision}`], ["Created", `revision ${m.create_revision}`],
    ["Version", count(m.version)], ["Value", size(got.value.bytes)],
    ["Kind", got.value.type ?? got.value.kind],
    ["Lease", got.lease ? [h("a", { class: "mono", href: `#/leases/${got.lease.id}` }, got.lease.id),
      `: ${got.lease.ttl < 0 ? "ended" : `${seconds(got.lease.ttl)} of ${seconds(got.lease.granted_ttl)} left`}`] : "none"],
  ];
  return h("section", null, h("h2", null, "Key"), h("dl", { class: "meta" },
    list.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))));
}
