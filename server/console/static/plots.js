import { get } from "./api.js";
import { failed, fill, h, loading } from "./dom.js";
import { count, millis, rate, size } from "./format.js";

const interval = 10000; // milliseconds, as often as the server keeps figures
const times = [["15 min", 900], ["1 h", 3600], ["6 h", 21600]];
const height = 120;
const left = 58; // of the axes: room for figures
const bottom = 20;

// What the plots show of two samples, one after the other: a value for the time between them, null if there is none.
const perSecond = (...names) => (a, b, at) => names.reduce((sum, n) => sum + Math.max(at(b, n) - at(a, n), 0), 0) * 1000 / (at(b, "time") - at(a, "time"));
const mean = (name) => (a, b, at) => {
  const n = at(b, `${name}.count`) - at(a, `${name}.count`);
  return n > 0 ? (at(b, `${name}.sum`) - at(a, `${name}.sum`)) / n : null;
};
const now = (name) => (_, b, at) => at(b, name);
// Only the leader has what is marked with leader.
const leader = true;
const all = [
  ["Requests per second", perSecond("requests"), rate],
  ["Writes per second", perSecond("puts", "deletes"), rate, 1000, leader],
  ["Reads per second", perSecond("ranges"), rate],
  ["Events per second", perSecond("events"), rate],
  ["Commit, mean", mean("commit"), millis, 1000, leader],
  ["SQL statement, mean", mean("sql"), millis],
  ["Watchers of this node", now("watchers"), count],
  ["Leases", now("leases"), count, 1000, leader],
  ["Memory of this process", now("memory_bytes"), size, 1024],
  ["Database", now("db_size"), size, 1024],
];

// plots is a section with the figures of this node over a time that is chosen.
export function plots(signal) {
  const drawn = all.map((figure) => plot(...figure));
  const state = h("div", null, loading("the plots"));
  const elsewhere = h("p", { class: "dim", hidden: true });
  const choices = times.map(([label, seconds]) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => choose(seconds) } }, label));
  let chosen = 0;
  let timer = 0;

  async function load() {
    clearTimeout(timer);
    const seconds = chosen;
    if (!document.hidden) {
      try {
        const got = await get("samples", { seconds }, signal);
        if (seconds !== chosen) return; // another time was chosen since
        const at = (row, name) => row[got.columns.indexOf(name)];
        const end = at(got.rows.at(-1), "time");
        // A server that started since then fills the plots too, with a minute at least.
        const start = Math.max(end - seconds * 1000, Math.min(at(got.rows[0], "time"), end - 60000));
        for (const p of drawn) p.show(got.rows, at, start, end);
        fill(state, got.rows.length < 3 && h("p", { class: "dim" }, "The server keeps figures from its start on, every 10 seconds."));
      } catch (error) {
        if (signal.aborted) return;
        fill(state, failed(error));
      }
    }
    if (!signal.aborted && seconds === chosen) timer = setTimeout(load, interval);
  }

  function choose(seconds) {
    chosen = seconds;
    times.forEach(([, s], i) => choices[i].setAttribute("aria-pressed", String(s === seconds)));
    load();
  }

  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  choose(times[0][1]);
  const box = h("section", { id: "plots" }, h("h2", null, "This node over time"),
    h("div", { class: "row", role: "group", "aria-label": "Time" }, choices), state, elsewhere, h("div", { class: "plots" }, drawn.map((p) => p.box)));

  // follows leaves out what only the leader has, where this node had nothing of it, and says where it is: with the member
  // that leads, undefined if that is not known, or null if it is this node.
  let said = null;
  box.follows = (of) => {
    const now = JSON.stringify([of === null, of?.name, of?.console]);
    if (now === said) return; // a link keeps the focus
    said = now;
    for (const p of drawn) p.follows(of !== null);
    elsewhere.hidden = of === null;
    fill(elsewhere, "Writes, commits and leases are figures of the leader", of?.name ? [": ", of.console ? h("a", { href: of.console }, of.name) : of.name] : null, ".");
  };
  return box;
}

// plot is one figure with axes. Pointer and arrow keys choose a point, whose time and value are then shown.
function plot(title, of, write, base = 1000, ofLeader = false) {
  const svg = h("svg", { class: "plot", role: "img", tabindex: "0", height });
  const chosen = h("output", { class: "dim" });
  const box = h("figure", null, h("figcaption", null, h("span", null, title), chosen), svg);
  let points = []; // [time, value]
  let span = [0, 1];
  let at = -1; // the point that is chosen
  let width = 0;
  let following = false;

  const hide = () => { box.hidden = following && ofLeader && points.every(([, v]) => !v); };
  const x = (t) => left + ((t - span[0]) / (span[1] - span[0])) * (width - left - 8);
  let top = 1;
  const y = (v) => 8 + (1 - v / top) * (height - bottom - 8);

  function draw() {
    width = svg.clientWidth;
    if (width === 0) return;
    const values = points.map(([, v]) => v).filter((v) => v !== null);
    top = 2 * nice(Math.max(...values, 0) / 2, base, write === millis ? 0 : 1);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    fill(svg, [0, top / 2, top].map((v) => [
      h("line", { class: "grid", x1: left, x2: width - 8, y1: y(v), y2: y(v) }),
      h("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, write(v)),
    ]), [0, 0.5, 1].map((part) => h("text", { x: x(span[0] + part * (span[1] - span[0])), y: height - 4, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" },
      clock(span[0] + part * (span[1] - span[0]), span[1] - span[0] < 300000))),
    h("path", { d: path(points) }));
    svg.setAttribute("aria-label", values.length === 0 ? `${title}: nothing yet`
      : `${title}: ${write(values.at(-1))} now, ${write(Math.min(...values))} to ${write(Math.max(...values))}`);
    point();
  }

  // path leaves gaps where there is no value.
  function path(list) {
    let d = "";
    let pen = "M";
    for (const [t, v] of list) {
      if (v === null) pen = "M";
      else {
        d += `${pen}${x(t).toFixed(1)} ${y(v).toFixed(1)}${pen === "M" ? "h0" : ""}`; // a point of its own is a dot
        pen = "L";
      }
    }
    return d;
  }

  // point marks what is chosen.
  function point() {
    svg.querySelector(".cursor")?.remove();
    const [t, v] = points[at] ?? points.at(-1) ?? [];
    chosen.textContent = t === undefined ? "" : `${v === null ? "–" : write(v)} at ${clock(t, true)}`;
    if (points[at]) svg.append(h("line", { class: "cursor", x1: x(t), x2: x(t), y1: 8, y2: height - bottom }));
  }

  const choose = (i) => {
    at = i;
    point();
  };
  svg.addEventListener("pointermove", (event) => {
    const t = span[0] + ((event.offsetX - left) / (width - left - 8)) * (span[1] - span[0]);
    choose(points.reduce((best, p, i) => (Math.abs(p[0] - t) < Math.abs((points[best]?.[0] ?? Infinity) - t) ? i : best), -1));
  });
  svg.addEventListener("pointerleave", () => choose(-1));
  svg.addEventListener("blur", () => choose(-1));
  svg.addEventListener("keydown", (event) => {
    const from = at < 0 ? points.length - 1 : at;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: points.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(Math.min(Math.max(to, 0), points.length - 1));
  });
  new ResizeObserver(draw).observe(svg);

  return {
    box,
    follows(is) {
      following = is;
      hide();
    },
    show(rows, column, start, end) {
      const looking = points[at]?.[0]; // the time that is looked at stays
      span = [start, end];
      // A process that started anew counts from zero: there is no value for the time of that.
      points = rows.slice(1).map((row, i) => [column(row, "time"), column(row, "started") === column(rows[i], "started") ? of(rows[i], row, column) : null]);
      at = looking === undefined ? -1 : points.findIndex(([t]) => t >= looking);
      hide();
      draw();
    },
  };
}

// nice is a round number of at least n and least, for the middle of an axis.
function nice(n, base, least) {
  if (n <= least) return least || 1;
  const power = base ** Math.floor(Math.log(n) / Math.log(base));
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, base].find((f) => f * power >= n * 0.999) * power;
}

const clock = (ms, exact) => new Date(ms).toLocaleTimeString("en-GB", exact ? {} : { hour: "2-digit", minute: "2-digit" });
