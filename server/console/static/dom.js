// Elements are made of tags, attributes and texts. There is no way in for HTML: what
// comes from the server can only become text.

const svgTags = new Set(["svg", "path", "rect", "line", "text"]);

// h makes an element. In props, on is a map of listeners and class the class; what is
// true stands without a value, and false, null or undefined is left out.
export function h(tag, props, ...children) {
  const e = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) e.addEventListener(event, listener);
    } else {
      e.setAttribute(name, value === true ? "" : String(value));
    }
  }
  put(e, ...children);
  return e;
}

// put appends elements and texts; null and false are nothing.
export function put(e, ...children) {
  for (const c of children.flat(Infinity)) {
    if (c === null || c === undefined || c === false) continue;
    e.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
  return e;
}

// fill is put into an element that had something else.
export function fill(e, ...children) {
  e.replaceChildren();
  return put(e, ...children);
}

export const loading = (what) => h("p", { class: "loading", role: "status" }, `Loading ${what} …`);
export const empty = (text) => h("p", { class: "empty" }, text);
export const notice = (text) => h("p", { class: "notice" }, text);

// failed shows an error. With again it also offers to try again, and does so by itself as long as the error is one that
// passes, so that no page keeps an error that is over.
export function failed(error, again) {
  const text = h("p", { class: "error", role: "alert" }, error.message ?? String(error));
  if (!again) return text;
  const box = h("div", null, text, h("button", { type: "button", on: { click: again } }, "Try again"));
  if (passing.has(error.status)) later(box, again);
  return box;
}

const passing = new Set([0, 429, 502, 503, 504]);

// later calls act in some seconds, once the page can be seen, unless the element is gone by then.
export function later(element, act) {
  setTimeout(() => {
    if (!element.isConnected) return;
    if (document.hidden) later(element, act);
    else act();
  }, 5000);
}

// table makes a table, which its label describes. Columns whose name begins with # are numbers, with + for wide
// screens only.
export function table(label, columns, rows) {
  const kind = columns.map((c) => [c.includes("#") && "n", c.includes("+") && "wide"].filter(Boolean).join(" ") || null);
  const body = h("tbody");
  const made = (row) => h("tr", null, row.map((cell, i) => h("td", { class: kind[i] }, cell)));
  const add = (more) => put(body, more.map(made));
  add(rows);
  const box = scrollable(label, h("table", null,
    h("thead", null, h("tr", null, columns.map((c, i) => {
      const name = c.replace(/^[#+]+/, "");
      return name ? h("th", { scope: "col", class: kind[i] }, name) : h("td", { class: kind[i] });
    }))), body));
  box.add = add;
  // set changes the cells that differ. Others stay, so that a link in them keeps the focus.
  box.set = (all) => {
    all.map(made).forEach((fresh, i) => {
      const row = body.rows[i];
      if (!row) body.append(fresh);
      else [...fresh.cells].forEach((cell, j) => { if (!row.cells[j].isEqualNode(cell)) row.cells[j].replaceWith(cell); });
    });
    while (body.rows.length > all.length) body.lastChild.remove();
  };
  return box;
}

// scrollable holds what may be wider than the screen. The keyboard reaches it while it is.
function scrollable(label, content) {
  const box = h("div", { class: "scroll" }, content);
  new ResizeObserver(() => {
    const scrolls = box.scrollWidth > box.clientWidth;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", label]]) {
      if (scrolls) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }).observe(box);
  return box;
}

// field is a control with its label.
export const field = (label, control, className) => h("label", { class: className }, label, control);

// confirmed asks before something that cannot be undone.
export function confirmed(question, verb) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question },
      h("p", { class: "mono" }, question),
      h("div", { class: "row" },
        h("button", { type: "button", class: "danger", on: { click: () => dialog.close("yes") } }, verb),
        h("button", { type: "button", autofocus: true, on: { click: () => dialog.close("") } }, "Cancel")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
