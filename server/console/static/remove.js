import { get, post } from "./api.js";
import { fromBase64, fromParam, show, startsWith, toBase64, toLink } from "./bytes.js";
import { empty, failed, field, fill, h, loading, notice } from "./dom.js";
import { attempt, bypass, registry } from "./edit.js";
import { count } from "./format.js";
import { crumbs } from "./keys.js";

// remove shows which keys begin with a prefix, and deletes them once their number was typed.
export async function remove(main, param, signal) {
  const prefix = fromParam(param);
  const body = h("section", null, loading("the keys"));
  fill(main, h("h1", null, "Delete keys"), crumbs(prefix), body);

  async function load() {
    try {
      draw(await get("removal", { prefix: param }, signal));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(body, failed(error, load));
    }
  }

  function draw(got) {
    const names = got.keys.map((k) => h("li", null, h("a", { class: "mono", href: `#/key/${toLink(fromBase64(k))}` }, show(fromBase64(k)))));
    const others = got.count - names.length;
    fill(body, h("h2", null, got.count === 0 ? "Nothing to delete" : `${count(got.count)} key${got.count === 1 ? "" : "s"} at revision ${got.revision}`),
      got.count === 0 ? empty(`No key begins with ${show(prefix)}.`) : [form(got),
        h("ul", { class: "plain list" }, names, others > 0 && h("li", { class: "dim" }, `and ${count(others)} more`))]);
  }

  function form(got) {
    if (!got.may_write) return notice("You may not change anything here.");
    if (got.count > got.most) return notice(`At most ${count(got.most)} keys are deleted at once, in one revision. Choose a longer prefix.`);
    const state = h("div");
    const number = h("input", { name: "count", inputmode: "numeric", autocomplete: "off", required: true, pattern: String(got.count) });
    number.title = `${got.count}, the number of keys`;
    let deleted = 0;
    return h("form", { class: "remove", on: { submit: (event) => {
      event.preventDefault();
      attempt(state, async () => {
        ({ deleted } = await post("remove", { prefix: toBase64(prefix), revision: got.revision }));
      }, () => fill(body, h("p", { role: "status" }, `${count(deleted)} key${deleted === 1 ? " was" : "s were"} deleted.`), h("p", null, h("a", { href: "#/keys/" }, "All keys"))));
    } } }, state,
    h("p", null, "They are deleted at once, and only if none was created or changed since they were counted. What they held stays in their history until it is compacted."),
    startsWith(prefix, registry) && h("p", null, bypass()),
    h("div", { class: "row" }, field(`Type ${got.count}, how many keys to delete`, number),
      h("button", { type: "submit", class: "danger" }, "Delete all"), h("button", { type: "button", on: { click: load } }, "Count again")));
  }
  await load();
}
