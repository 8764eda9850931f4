import { get } from "./api.js";
import { fill, h, notice, failed, loading, put, table } from "./dom.js";
import { count, millis, rate, seconds, size } from "./format.js";
import { sizes } from "./sizes.js";
import { spark } from "./spark.js";

const interval = 2000;
const kept = 90; // samples of a sparkline

// What the tiles show of an answer, and of what happened since the one before.
const tiles = [
  ["Revision", (s) => count(s.revision), (d) => d.rate((s) => s.revision), "line: changes per second"],
  ["Requests", (s, d) => `${rate(d.value("requests"))}/s`, (d) => d.value("requests"), "gRPC calls of clients"],
  ["Writes", (s, d) => `${rate(d.writes())}/s`, (d) => d.writes(), "puts and deletes"],
  ["Reads", (s, d) => `${rate(d.value("ranges"))}/s`, (d) => d.value("ranges"), "ranges"],
  ["Batch", (s, d) => or((n) => n.toFixed(1), d.mean("batch")), (d) => d.mean("batch") ?? 0, "changes in one commit"],
  ["Commit", (s, d) => or(millis, d.mean("commit")), (d) => d.mean("commit") ?? 0, "of a batch, mean"],
  ["SQL", (s, d) => or(millis, d.sql()), (d) => d.sql() ?? 0, "of a statement, mean"],
  ["Watchers", (s) => count(s.metrics.values.watchers ?? 0), (d) => d.now.metrics.values.watchers ?? 0,
    (s) => `${count(s.metrics.values.slow_watchers ?? 0)} slow`],
  ["Ring", (s) => count(s.metrics.values.ring_events ?? 0), (d) => d.now.metrics.values.ring_events ?? 0,
    (s) => `events, ${size(s.metrics.values.ring_bytes ?? 0)}`],
  ["Leases", (s) => count(s.metrics.values.leases ?? 0), (d) => d.now.metrics.values.leases ?? 0, "known to the leader"],
  ["Compaction", (s) => count(s.revision - s.compact_revision), (d) => d.now.revision - d.now.compact_revision,
    (s) => (s.compact_revision > 0 ? `revisions since ${count(s.compact_revision)}` : "revisions, nothing compacted")],
  ["Database", (s) => size(s.db_size), (d) => d.now.db_size, (s) => `${size(s.db_size_in_use)} in use${s.quota > 0 ? ` of ${size(s.quota)}` : ""}`],
  ["Feed lag", (s) => (s.feed_lag < 0 ? "unknown" : count(s.feed_lag)), (d) => Math.max(d.now.feed_lag, 0),
    (s) => (s.leader === s.member_id ? "this node leads" : "revisions behind the leader")],
  ["Memory", (s) => size(s.metrics.values.memory_bytes ?? 0), (d) => d.now.metrics.values.memory_bytes ?? 0, "of this process"],
];

// Delta is what happened between two answers; before is null for the first one.
class Delta {
  constructor(before, now) {
    // A process that started anew counts from zero.
    this.before = before?.metrics.values.started === now.metrics.values.started ? before : null;
    this.now = now;
  }

  rate(of) {
    if (!this.before) return 0;
    return (Math.max(of(this.now) - of(this.before), 0) * 1000) / Math.max(this.now.time - this.before.time, 1);
  }

  value(name) { return this.rate((s) => s.metrics.values[name] ?? 0); }
  writes() { return this.value("puts") + this.value("deletes"); }

  mean(name) { return mean(this.before?.metrics.histograms[name], this.now.metrics.histograms[name]); }

  sql() {
    const all = (s) => s?.metrics.sql.reduce((a, b) => ({ count: a.count + b.count, sum: a.sum + b.sum }), { count: 0, sum: 0 });
    return mean(all(this.before), all(this.now));
  }
}

// mean is that of what was observed between two answers, null if nothing was.
function mean(before, now) {
  if (!before || !now || now.count <= before.count) return null;
  return (now.sum - before.sum) / (now.count - before.count);
}

// or writes a mean, or that there is none.
const or = (write, n) => (n === null ? "–" : write(n));

export async function overview(main, _, signal) {
  const problem = h("div");
  const board = h("div", null, loading("the overview"));
  const rest = h("div");
  fill(main, h("h1", null, "Overview"), problem, board, sizes(signal), rest);
  const lines = tiles.map(() => []);
  let before = null;
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        const now = await get("status", {}, signal);
        const delta = new Delta(before, now);
        tiles.forEach(([, , line], i) => {
          lines[i].push(line(delta));
          if (lines[i].length > kept) lines[i].shift();
        });
        draw(board, now, delta, lines);
        fill(rest, statements(now, delta.before), versions(now));
        before = now;
        fill(problem);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401) throw error;
        fill(problem, failed(error));
      }
    }
    await pause(interval, signal);
  }
}

// pause ends early when the page is left.
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

function draw(board, now, delta, lines) {
  const problems = now.alarms.map((a) => failed(new Error(`Alarm ${a.alarm}, raised by member ${a.member}`)));
  if (now.not_serving) problems.push(failed(new Error(now.not_serving)));
  fill(board, problems,
    h("div", { class: "tiles" }, tiles.map(([label, number, , unit], i) => h("div", { class: "tile" },
      h("div", { class: "label" }, label), h("div", { class: "number" }, number(now, delta)),
      h("div", { class: "unit" }, typeof unit === "function" ? unit(now) : unit), spark(`${label}, the last minutes`, lines[i])))),
    members(now), alarms(now));
}

function members(now) {
  const rows = now.members.map((m) => [
    [m.name || "(not started)", m.self ? h("span", { class: "dim" }, " (this node)") : null],
    h("span", { class: "mono id" }, m.id),
    m.leader ? "leader" : m.alive ? "follower" : "",
    m.alive ? h("span", { class: "good" }, "alive") : h("span", { class: "bad" }, "not alive"),
    m.version || now.product,
    h("span", { class: "mono" }, (m.client_urls ?? []).join(" ")),
  ]);
  const known = now.leader !== "" ? null : notice("No leader is known.");
  return h("section", null, h("h2", null, "Members"), known, table(["Name", "ID", "Role", "State", "Version", "Client URLs"], rows));
}

function alarms(now) {
  const section = h("section", null, h("h2", null, "Alarms"));
  if (now.alarms.length === 0) return put(section, h("p", { class: "empty" }, "No alarm is raised."));
  return put(section, table(["Alarm", "Member"], now.alarms.map((a) => [h("span", { class: "bad" }, a.alarm), h("span", { class: "mono id" }, a.member)])));
}

const none = { count: 0, sum: 0 };

function statements(now, before) {
  const rows = now.metrics.sql.filter((s) => s.count > 0).sort((a, b) => b.sum - a.sum).slice(0, 8).map((s) => {
    const old = before?.metrics.sql.find((o) => o.statement === s.statement);
    return [h("span", { class: "mono" }, s.statement), count(s.count), seconds(s.sum), millis(s.sum / s.count), or(millis, before ? mean(old ?? none, s) : null)];
  });
  return h("section", null, h("h2", null, "SQL statements"), 
    table(["Statement", "#Since the start", "#Time in all", "#Mean in all", "#Mean now"], rows));
}

function versions(now) {
  const started = now.metrics.values.started;
  const facts = [
    ["sqlbrain", now.product], ["Serves etcd", now.etcd], ["Node", now.name], ["Term", count(now.term)],
    ["Commits", count(now.commits)], ["Cluster ID", now.cluster_id], ["Compacted rows to remove", count(now.metrics.values.compaction_lag ?? 0)],
    ["Up", started ? seconds(now.time / 1000 - started) : "unknown"],
  ];
  return h("section", null, h("h2", null, "About"), h("dl", { class: "meta" },
    facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
}
