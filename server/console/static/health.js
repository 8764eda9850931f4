import { get } from "./api.js";
import { fill, h } from "./dom.js";

const interval = 15000; // milliseconds between questions: one of the checks writes a row
const answerTimeout = 10000;
const banner = document.getElementById("banner");
let shown = "";
let failing = []; // checks
let lost = []; // members
let admitted = false; // the visitor may know the members

// health shows above every page which checks of /readyz fail, and which members are lost.
export async function health() {
  for (;;) {
    if (!document.hidden) {
      const asked = askMembers();
      failing = await problems();
      draw();
      await asked;
    }
    await new Promise((resume) => setTimeout(resume, interval));
  }
}

// visitor says who looks. One who has to log in first is not asked for: the server records what it denies.
export function visitor(session) {
  const before = admitted;
  admitted = !session.auth_enabled || session.user !== "";
  if (admitted && !before) askMembers();
  if (!admitted) members([]);
}

async function askMembers() {
  if (!admitted) return;
  try {
    members(await get("members", {}, AbortSignal.timeout(answerTimeout)));
  } catch (error) {
    if (error.status === 401) admitted = false;
    members([]);
  }
}

// members shows which of the members are lost, as they were seen now.
export function members(all) {
  lost = all.filter((m) => m.state !== "alive" && m.state !== "not started")
    .map((m) => `${m.name || m.id}${m.leader ? ", the leader," : ""} ${m.state.startsWith("does") ? m.state : `is ${m.state}`}`);
  draw();
}

function draw() {
  const now = JSON.stringify([failing, lost]);
  if (now === shown) return;
  shown = now;
  const problem = (title, list) => list.length > 0 && h("div", { class: "error", role: "alert" },
    h("strong", null, title), h("ul", null, list.map((text) => h("li", null, text))));
  fill(banner, problem("This node is not ready.", failing), problem("The cluster has lost members.", lost));
}

async function problems() {
  try {
    const response = await fetch("../readyz", { credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(answerTimeout) });
    if (response.status !== 503) return []; // a proxy may have only the console
    return (await response.text()).split("\n").filter((line) => line.startsWith("[-]")).map((line) => line.slice("[-]".length));
  } catch {
    return ["The server cannot be reached."];
  }
}
