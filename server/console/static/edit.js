import { post } from "./api.js";
import { fromParam, read, show, toBase64, toLink } from "./bytes.js";
import { confirmed, failed, field, fill, h, notice } from "./dom.js";
import { lines } from "./history.js";

// editor changes or deletes a key that was read, and calls done after that. What is no
// text, or partly hidden, can be deleted only.
export function editor(got, name, done) {
  const state = h("div");
  const at = { key: toBase64(name), mod_revision: got.meta.mod_revision };
  const remove = h("button", { type: "button", class: "danger", on: { click: async () => {
    if (await confirmed(`Delete ${show(name)}?`, "Delete")) attempt(state, () => post("delete", at), done);
  } } }, "Delete");
  if (got.value.yaml) return h("section", { id: "edit" }, h("h2", null, "Change"), state, objectEditor(got, at, state, remove, done));
  if (!got.value.editable) return h("section", { id: "edit" }, h("h2", null, "Change"), state, remove);

  const text = h("textarea", { name: "value", spellcheck: "false" });
  text.value = got.value.text ?? "";
  const form = h("form", { on: { submit: (event) => {
    event.preventDefault();
    const value = toBase64(new TextEncoder().encode(lineEnds(text.value, got.value.text ?? "")));
    attempt(state, () => post("put", { ...at, value }), done);
  } } }, field("Value", text), h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Save"), remove));
  return h("section", { id: "edit" }, h("h2", null, "Change"), state, form);
}

// objectEditor edits an object of Kubernetes as YAML. The server checks it, shows what would change, and stores it in
// the form that it had.
function objectEditor(got, at, state, remove, done) {
  const text = h("textarea", { name: "yaml", spellcheck: "false", rows: 16 });
  const result = h("div", { role: "status" });
  text.value = got.value.readable;
  const body = (write) => ({ ...at, yaml: text.value, write });
  const check = () => {
    fill(result);
    let checked;
    attempt(state, async () => { checked = await post("object", body(false)); },
      () => fill(result, lines(checked.diff, "What would change", "Nothing would change.")));
  };
  return h("form", { on: { submit: (event) => {
    event.preventDefault();
    fill(result);
    attempt(state, () => post("object", body(true)), done);
  } } }, field("Object, as YAML", text), result, h("div", { class: "row" }, h("button", { type: "button", on: { click: check } }, "Check"),
    h("button", { type: "submit", class: "main" }, "Save"), remove));
}

// lineEnds gives the text of a control, whose lines end with \n, the ends that the
// value had.
const lineEnds = (text, value) => (value.includes("\r\n") && !/[^\r]\n/.test(value) ? text.replaceAll("\n", "\r\n") : text);

// create is the page that makes a new key.
export function create(main, param, signal, session) {
  const key = h("input", { name: "key", required: true, spellcheck: "false", autocomplete: "off", value: show(fromParam(param)) });
  const text = h("textarea", { name: "value", spellcheck: "false" });
  const state = h("div");
  const form = h("form", { on: { submit: (event) => {
    event.preventDefault();
    const name = read(key.value);
    const value = toBase64(new TextEncoder().encode(text.value));
    attempt(state, () => post("put", { key: toBase64(name), value, mod_revision: 0 }), () => { location.hash = `#/key/${toLink(name)}`; });
  } } }, h("div", { class: "row" }, field("Key", key, "grow")), field("Value", text),
  h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Create")));
  fill(main, h("h1", null, "New key"),
    session.may_write ? h("section", null, state, form) : notice("You may not change anything here."));
  key.focus();
}

// attempt does something, and shows why it failed.
export async function attempt(state, act, done) {
  fill(state);
  try {
    await act();
  } catch (error) {
    fill(state, failed(error));
    return;
  }
  await done();
}
