import { empty, h, fill } from "./dom.js";
import { deletion, editable, editor } from "./edit.js";
import { highlight } from "./highlight.js";
import { show } from "./bytes.js";

// value shows a value in its forms, to be copied, saved and edited. After a change it calls done.
export function value(got, name, { param, revision, managed, toggle, done }) {
  const v = got.value;
  const forms = [["Readable", v.readable], ["Text", v.text], ["Hex", v.hex]].filter(([, text]) => text);
  const shown = h("pre", { tabindex: "0", id: "value", role: "region", "aria-label": "Value" });
  const said = h("span", { role: "status", class: "dim" });
  let text = "";
  let form = "";
  const tabs = forms.map(([label, content]) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => choose(label, content) } }, label));
  function choose(label, content) {
    [form, text] = [label, content];
    fill(shown, label === "Hex" ? content : highlight(content));
    said.textContent = "";
    for (const t of tabs) t.setAttribute("aria-pressed", String(t.textContent === label));
  }
  const wrap = h("button", { type: "button", "aria-pressed": "false", on: { click: () => {
    wrap.setAttribute("aria-pressed", String(shown.classList.toggle("wrap")));
  } } }, "Wrap");
  const copied = async () => { said.textContent = await copy(text) ? "Copied." : "This browser does not let the page copy."; };
  const stored = `api/raw?${new URLSearchParams({ key: param, ...(got.at && { revision: got.at }) })}`;
  const file = fileName(name);
  if (forms.length > 0) choose(...forms[0]);

  const state = h("div");
  const pane = h("div");
  const edit = h("button", { type: "button", class: "main", on: { click: () => {
    const form = editor(got, name, state, done, () => {
      fill(state);
      fill(pane, reading);
      edit.focus();
    });
    fill(pane, form);
    form.querySelector("textarea").focus();
  } } }, "Edit");
  const reading = [
    h("div", { class: "row" },
      h("div", { class: "row group", role: "group", "aria-label": "Form of the value" }, tabs,
        v.kind === "kubernetes" && v.readable
          ? h("button", { type: "button", "aria-pressed": String(managed), on: { click: toggle } }, "Managed fields") : null),
      forms.length > 0 && h("div", { class: "row group", role: "group", "aria-label": "Use of the value" }, wrap,
        h("button", { type: "button", on: { click: copied } }, "Copy"),
        h("button", { type: "button", on: { click: () => save(`${file}${ending(v, form)}`, text) } }, "Download"),
        !v.hidden && h("a", { href: stored, download: file }, "As stored"), said),
      got.may_write && !revision && h("div", { class: "row group change" }, editable(v) && edit, deletion(got, name, state, done))),
    forms.length > 0 ? shown : empty(v.bytes === 0 ? "The value is empty." : "Nothing of it can be shown."),
  ];
  fill(pane, reading);
  return h("section", null, h("h2", null, "Value"), v.note ? h("p", { class: "dim" }, v.note) : null, state, pane);
}

// fileName is the end of a key, as far as files may be named so.
const fileName = (name) => (show(name).split("/").filter(Boolean).pop() ?? "value").replaceAll(/[^\w.-]/g, "_");

const ending = (v, form) => (form === "Hex" ? ".hex.txt" : v.kind === "json" ? ".json" : v.kind === "kubernetes" && form === "Readable" ? ".yaml" : ".txt");

// save has the browser save a text as a file.
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

// copy puts a text on the clipboard, and reports whether it could. Browsers have the newer way only for pages over
// TLS and of this machine.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "away", readonly: true, "aria-hidden": "true" });
    const before = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
  }
}
