import { access } from "./access.js";
import { get, post } from "./api.js";
import { fromLink, show, toParam } from "./bytes.js";
import { failed, fill, h, later, loading } from "./dom.js";
import { doctor } from "./doctor.js";
import { create } from "./edit.js";
import { health, visitor } from "./health.js";
import { key } from "./key.js";
import { keys } from "./keys.js";
import { leases } from "./leases.js";
import { login } from "./login.js";
import { overview } from "./overview.js";
import { remove } from "./remove.js";
import { watch } from "./watch.js";
import { watchers } from "./watchers.js";

// The address behind # names a page, the key or prefix that it is about, and what of it is shown:
// #/key//registry/pods/default/web?revision=7.
const pages = { "": overview, keys, key, new: create, watch, delete: remove, leases, watchers, access, doctor };

const main = document.getElementById("main");
const who = document.getElementById("who");
let leaving = new AbortController(); // ends what the page of the moment does

async function route() {
  leaving.abort();
  leaving = new AbortController();
  const signal = leaving.signal;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close(""); // it asks about the page that is left
  const [, name, link, query] = /^#?\/?([^/?]*)\/?([^?]*)\??(.*)$/.exec(location.hash);
  const subject = fromLink(link);
  const param = toParam(subject);
  mark(name);
  document.title = title(name, subject);
  fill(main, loading("the page"));
  try {
    const session = await get("session", {}, signal);
    greet(session);
    if (session.auth_enabled && !session.user) {
      login(main, session.problem, route);
      return;
    }
    const page = pages[name];
    if (!page) {
      fill(main, failed(new Error("There is no such page.")));
      return;
    }
    await page(main, param, signal, session, new URLSearchParams(query));
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) login(main, error.message, route);
    else fill(main, failed(error, route));
  }
}

const titles = {
  "": "Overview", keys: "Keys", new: "New key", watch: "Watch", delete: "Delete keys", leases: "Leases", watchers: "Watchers", access: "Users and roles", doctor: "Doctor",
};

// title begins with what tells tabs apart: the end of a key.
function title(name, subject) {
  const start = subject.lastIndexOf(0x2f, subject.length - 2) + 1;
  return [show(subject.slice(start)), show(subject.slice(0, start)), titles[name], "sqlbrain"].filter(Boolean).join(" – ");
}

// mark says in the navigation where we are.
function mark(name) {
  const of = { key: "keys", new: "keys", watch: "keys", delete: "keys" }[name] ?? name;
  for (const a of document.querySelectorAll("header nav a")) {
    const [, target = ""] = a.getAttribute("href").split("/");
    if (target === of) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

function greet(session) {
  visitor(session);
  if (session.problem && (session.user || !session.auth_enabled)) {
    const problem = h("span", { class: "bad" }, session.problem);
    fill(who, problem);
    later(problem, () => recovered(session));
    return;
  }
  if (!session.auth_enabled) {
    fill(who, session.may_write ? "authentication is off" : "read-only");
    return;
  }
  if (!session.user) {
    fill(who);
    return;
  }
  fill(who, h("span", null, session.user), h("button", { type: "button", on: { click: async () => {
    let problem = "";
    try {
      await post("logout");
    } catch (error) {
      problem = `This browser is logged out, but the server could not end the login: ${error.message}`;
    }
    await route();
    if (problem) fill(who, h("span", { class: "bad" }, problem));
  } } }, "Log out"));
}

// recovered asks again who looks, until there is an answer without a problem. The page begins anew if it may change more
// than before: what it lacked is not in it.
async function recovered(before) {
  const session = await get("session", {}, leaving.signal).catch(() => before);
  if (session.may_write !== before.may_write) route();
  else greet(session);
}

document.getElementById("skip").addEventListener("click", () => main.focus());
addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
  main.focus({ preventScroll: true }); // what had the focus may be gone, and readers begin with the new page
});
health();
route();
