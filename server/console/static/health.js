import { fill, h } from "./dom.js";

const interval = 15000; // milliseconds between questions: one of the checks writes a row
const patience = 10000;

// health shows above every page which checks of /readyz fail.
export async function health(banner) {
  let shown = "";
  for (;;) {
    if (!document.hidden) {
      const failing = await problems();
      if (failing.join("\n") !== shown) {
        shown = failing.join("\n");
        fill(banner, failing.length > 0 && h("div", { class: "error", role: "alert" },
          h("strong", null, "This node is not ready."), h("ul", null, failing.map((text) => h("li", null, text)))));
      }
    }
    await new Promise((resume) => setTimeout(resume, interval));
  }
}

async function problems() {
  try {
    const response = await fetch("../readyz", { credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(patience) });
    if (response.status !== 503) return []; // a proxy may have only the console
    const failing = (await response.text()).split("\n").filter((line) => line.startsWith("[-]"));
    return failing.map((line) => line.slice("[-]".length));
  } catch {
    return ["The server cannot be reached."];
  }
}
