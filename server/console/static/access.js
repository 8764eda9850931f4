import { get, post } from "./api.js";
import { fromBase64, read, show, toBase64 } from "./bytes.js";
import { confirmed, empty, failed, field, fill, h, loading, notice, put, table } from "./dom.js";
import { attempt } from "./edit.js";

// access shows users, roles and permissions, and changes them for those who may.
export async function access(main, _, signal, session) {
  const state = h("div");
  const body = h("div", null, loading("users and roles"));
  fill(main, h("h1", null, "Users and roles"), state, body);

  async function load() {
    try {
      const got = await get("access", {}, signal);
      const change = (path, what) => attempt(state, () => post(`access/${path}`, what), load);
      fill(body, introduction(got, session), users(got, change), roles(got, change));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      fill(body, failed(error, load));
    }
  }
  await load();
}

function introduction(got, session) {
  if (!got.auth_enabled) return notice("Authentication is off: everybody may do everything that the network lets through. etcdctl auth enable turns it on.");
  if (!session.root) return notice("You see yourself. Whoever has the role root sees and changes everybody.");
  return null;
}

// chip is one of several, with a way to take it away.
function chip(text, label, remove) {
  return h("span", { class: remove ? "chip" : "chip plain" }, text,
    remove ? h("button", { type: "button", "aria-label": label, title: label, on: { click: remove } }, "×") : null);
}

// sure asks, then does it.
const sure = (question, verb, act) => async () => { if (await confirmed(question, verb)) act(); };

function users(got, change) {
  const section = h("section", { id: "users" }, h("h2", null, "Users"));
  const rows = got.users.map((u) => [
    h("span", { class: "mono" }, u.name),
    h("div", { class: "chips" }, u.roles.length === 0 ? h("span", { class: "dim" }, "no role") : u.roles.map((role) => chip(role, `Take the role ${role} from ${u.name}`,
      got.may_edit && sure(`Take the role ${role} from ${u.name}?`, "Revoke", () => change("user-revoke", { user: u.name, role }))))),
    got.may_edit ? h("button", { type: "button", class: "danger", "aria-label": `Delete the user ${u.name}`,
      on: { click: sure(`Delete the user ${u.name}?`, "Delete", () => change("user-delete", { user: u.name })) } }, "Delete") : null,
  ]);
  put(section, rows.length > 0 ? table("Users", ["User", "Roles", "#"], rows) : empty("There are no users."));
  if (!got.may_edit) return section;
  const names = got.users.map((u) => u.name);
  return put(section,
    form("Add a user", [["User", text("user")], ["Password", secret()]], "Add user", (v) => change("user-add", { user: v.user, password: v.password })),
    names.length > 0 && form("Set a password", [["User", choice("user", names)], ["New password", secret()]], "Set password",
      (v) => change("user-password", { user: v.user, password: v.password })),
    names.length > 0 && form("Give a role", [["User", choice("user", names)], ["Role", choice("role", [...new Set([...got.roles.map((r) => r.name), "root"])])]], "Grant role",
      (v) => change("user-grant", { user: v.user, role: v.role })));
}

function roles(got, change) {
  const section = h("section", { id: "roles" }, h("h2", null, "Roles"));
  const rows = got.roles.map((r) => [
    h("span", { class: "mono" }, r.name),
    h("div", { class: "chips" }, permissions(r, got, change)),
    got.may_edit ? h("button", { type: "button", class: "danger", "aria-label": `Delete the role ${r.name}`,
      on: { click: sure(`Delete the role ${r.name}?`, "Delete", () => change("role-delete", { role: r.name })) } }, "Delete") : null,
  ]);
  put(section, rows.length > 0 ? table("Roles", ["Role", "Permissions", "#"], rows) : empty("There are no roles."));
  if (!got.may_edit) return section;
  put(section, form("Add a role", [["Role", text("role")]], "Add role", (v) => change("role-add", { role: v.role })));
  if (got.roles.length === 0) return section;
  return put(section, form("Give a permission",
    [["Role", choice("role", got.roles.map((r) => r.name))], ["May", choice("type", ["read", "write", "readwrite"])],
      ["Keys", choice("scope", ["that begin with", "of exactly this name"])], ["Key", text("key", false)]], "Grant permission", (v) => {
      const key = read(v.key);
      change("role-grant", { role: v.role, type: v.type, ...span(key, v.scope === "that begin with") });
    }));
}

function permissions(role, got, change) {
  if (role.name === "root") return h("span", { class: "dim" }, "everything");
  if (role.permissions.length === 0) return h("span", { class: "dim" }, "none");
  return role.permissions.map((p) => chip(`${p.type} ${range(p)}`, `Take ${p.type} ${range(p)} from ${role.name}`,
    got.may_edit && sure(`Take ${p.type} ${range(p)} from ${role.name}?`, "Revoke",
      () => change("role-revoke", { role: role.name, key: p.key, range_end: p.range_end }))));
}

// span is etcd's key and range_end, in base64, of a key or of all that begin with it.
function span(key, prefix) {
  if (!prefix) return { key: toBase64(key), range_end: "" };
  if (key.length === 0) return { key: toBase64([0]), range_end: toBase64([0]) };
  return { key: toBase64(key), range_end: toBase64(endOf(key)) };
}

function endOf(prefix) {
  const end = Uint8Array.from(prefix);
  for (let i = end.length - 1; i >= 0; i--) {
    if (end[i] < 0xff) {
      end[i]++;
      return end.slice(0, i + 1);
    }
  }
  return Uint8Array.of(0);
}

// range writes the keys of a permission.
export function range(p) {
  if (!p.range_end) return show(fromBase64(p.key));
  const key = fromBase64(p.key);
  if (p.range_end === toBase64([0]) && key.length === 1 && key[0] === 0) return "all keys";
  if (p.range_end === toBase64(endOf(key))) return `${show(key)}*`;
  return p.range_end === toBase64([0]) ? `${show(key)} and after` : `${show(key)} … ${show(fromBase64(p.range_end))}`;
}

const text = (name, required = true) => h("input", { name, required, autocomplete: "off", spellcheck: "false" });
const secret = () => h("input", { name: "password", type: "password", autocomplete: "new-password" });
const choice = (name, options) => h("select", { name }, options.map((o) => h("option", { value: o }, o)));

// form calls act with the values of its controls by their names.
function form(title, controls, verb, act) {
  return h("details", null, h("summary", null, title),
    h("form", { class: "row", on: { submit: (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(event.target));
      event.target.reset();
      act(values);
    } } }, controls.map(([label, control]) => field(label, control)), h("button", { type: "submit", class: "main" }, verb)));
}
