import { post } from "./api.js";
import { fromParam, read, show, startsWith, toBase64, toLink } from "./bytes.js";
import { confirmed, failed, field, fill, h, notice } from "./dom.js";
import { lines } from "./history.js";

// editable reports whether a value can be edited: it is text, and no part of it is hidden.
export const editable = (value) => value.yaml || value.editable;

// at is what a change of a key that was read must still find.
const at = (got, name) => ({ key: toBase64(name), mod_revision: got.meta.mod_revision });

// deletion is a button that deletes a key that was read, and calls done after that.
export function deletion(got, name, state, done) {
  return h("button", { type: "button", class: "danger", on: { click: async () => {
    const question = `Delete ${show(name)}?${kubernetes(got, name) ? ` ${bypassed}` : ""}`;
    if (await confirmed(question, "Delete")) attempt(state, () => post("delete", at(got, name)), done);
  } } }, "Delete");
}

// restoring is a button that gives a key the value of an older version, if the key still is at current, a mod revision,
// or 0 if it does not exist. It calls done after that.
export function restoring(v, name, current, state, done) {
  return h("button", { type: "button", "aria-label": `Restore this version: revision ${v.revision}`, on: { click: async () => {
    const question = `Give ${show(name)} the value of revision ${v.revision}?${kubernetes({ value: v }, name) ? ` ${bypassed}` : ""}`;
    const body = { key: toBase64(name), revision: v.revision, mod_revision: current };
    if (await confirmed(question, "Restore")) attempt(state, () => post("restore", body), done);
  } } }, "Restore this version");
}

// editor is a form that changes a key that was read, and calls done after that, or cancel.
export function editor(got, name, state, done, cancel) {
  const buttons = (...more) => h("div", { class: "row" }, more, h("button", { type: "submit", class: "main" }, "Save"),
    h("button", { type: "button", on: { click: cancel } }, "Cancel"), kubernetes(got, name) && bypass());
  if (got.value.yaml) return objectEditor(got, at(got, name), state, buttons, done);
  const before = got.value.text ?? "";
  const text = area("value", before);
  return h("form", { id: "edit", on: { submit: (event) => {
    event.preventDefault();
    const value = toBase64(new TextEncoder().encode(lineEnds(text.value, before)));
    attempt(state, () => post("put", { ...at(got, name), value }), done);
  } } }, field("Value", text), buttons());
}

// objectEditor edits an object of Kubernetes as YAML. The server checks it, shows what would change, and stores it in
// the form that it had.
function objectEditor(got, to, state, buttons, done) {
  const text = area("yaml", got.value.readable);
  const result = h("div", { role: "status" });
  const body = (write) => ({ ...to, yaml: text.value, write });
  const check = () => {
    fill(result);
    let checked;
    attempt(state, async () => { checked = await post("object", body(false)); },
      () => fill(result, lines(checked.diff, "What would change", "Nothing would change.")));
  };
  return h("form", { id: "edit", on: { submit: (event) => {
    event.preventDefault();
    fill(result);
    attempt(state, () => post("object", body(true)), done);
  } } }, field("Object, as YAML", text), result, buttons(h("button", { type: "button", on: { click: check } }, "Check")));
}

function area(name, value) {
  const text = h("textarea", { name, spellcheck: "false", rows: Math.min(Math.max(value.split("\n").length + 1, 8), 30) });
  text.value = value;
  text.setSelectionRange(0, 0); // where the text begins, it is shown first
  return text;
}

export const registry = new TextEncoder().encode("/registry/");
const kubernetes = (got, name) => got.value.kind === "kubernetes" || startsWith(name, registry);

// bypass says what Kubernetes does not do for a change that is made here.
const bypassed = "Kubernetes' API server does not see this: admission, validation and finalizers are bypassed.";
export const bypass = () => h("span", { class: "dim" }, bypassed);

// lineEnds gives the text of a control, whose lines end with \n, the ends that all lines of the value had.
const lineEnds = (text, value) => (value.includes("\r") ? text.replaceAll("\n", "\r\n") : text);

// create is the page that makes a new key.
export function create(main, param, signal, session) {
  const key = h("input", { name: "key", required: true, spellcheck: "false", autocomplete: "off", value: show(fromParam(param)) });
  const text = h("textarea", { name: "value", spellcheck: "false" });
  const state = h("div");
  const note = bypass();
  const typed = () => { note.hidden = !startsWith(read(key.value), registry); };
  key.addEventListener("input", typed);
  typed();
  const form = h("form", { on: { submit: (event) => {
    event.preventDefault();
    const name = read(key.value);
    const value = toBase64(new TextEncoder().encode(text.value));
    attempt(state, () => post("put", { key: toBase64(name), value, mod_revision: 0 }), () => { location.hash = `#/key/${toLink(name)}`; });
  } } }, h("div", { class: "row" }, field("Key", key, "grow")), field("Value", text),
  h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Create"), note));
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
