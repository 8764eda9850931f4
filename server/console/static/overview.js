import { get } from "./api.js";
import { fill, h, notice, failed, loading, table } from "./dom.js";
import { count, millis, rate, seconds, size } from "./format.js";
import { members } from "./health.js";
import { plots } from "./plots.js";
import { sizes } from "./sizes.js";
import { spark } from "./spark.js";

const interval = 2000;
const kept = 90; // samples of a sparkline

// What the tiles show of an answer, and of what happened since the one before: of all members that gave figures, or
// of the node that is asked.
const cluster = [
  ["Revision", (s) => s.revision, (d) => d.rate((s) => s.revision), "line: changes per second"],
  ["Requests", (s, d) => `${rate(d.all("requests"))}/s`, (d) => d.all("requests"), "gRPC calls of clients"],
  ["Writes", (s, d) => `${rate(d.writes())}/s`, (d) => d.writes(), "puts and deletes"],
  ["Reads", (s, d) => `${rate(d.all("ranges"))}/s`, (d) => d.all("ranges"), "ranges"],
  ["Watchers", (s) => count(total(s, "watchers")), (d) => total(d.now, "watchers"), (s) => `of all members, ${count(total(s, "slow_watchers"))} slow`],
  ["Leases", (s) => or(count, leases(s)), (d) => leases(d.now) ?? 0, "known to the leader"],
  ["Compaction", (s) => count(s.revision - s.compact_revision), (d) => d.now.revision - d.now.compact_revision,
    (s) => (s.compact_revision > 0 ? `revisions since ${s.compact_revision}` : "revisions, nothing compacted")],
  ["Database", (s) => size(s.db_size), (d) => d.now.db_size, (s) => `${size(s.db_size_in_use)} in use${s.quota > 0 ? ` of ${size(s.quota)}` : ""}`],
];
const node = [
  ["Batch", (s, d) => or((n) => n.toFixed(1), d.mean("batch")), (d) => d.mean("batch") ?? 0, (s) => (leads(s) ? "changes in one commit" : follows)],
  ["Commit", (s, d) => or(millis, d.mean("commit")), (d) => d.mean("commit") ?? 0, (s) => (leads(s) ? "of a batch, mean" : follows)],
  ["SQL", (s, d) => or(millis, d.sql()), (d) => d.sql() ?? 0, "of a statement, mean"],
  ["Ring", (s) => count(s.metrics.values.ring_events ?? 0), (d) => d.now.metrics.values.ring_events ?? 0,
    (s) => `events, ${size(s.metrics.values.ring_bytes ?? 0)}`],
  ["Feed lag", (s) => (s.feed_lag < 0 ? "unknown" : count(s.feed_lag)), (d) => Math.max(d.now.feed_lag, 0),
    (s) => (leads(s) ? "this node leads" : "revisions behind the leader")],
  ["Memory", (s) => size(s.metrics.values.memory_bytes ?? 0), (d) => d.now.metrics.values.memory_bytes ?? 0, "of this process"],
];

const follows = "only the leader commits";
const leads = (s) => s.leader === s.member_id;

// leases is the number of leases, which the leader counts; null if it gave no figures.
const leases = (s) => s.members.find((m) => m.leader)?.figures?.leases ?? null;

const total = (s, name) => s.members.reduce((sum, m) => sum + (m.figures?.[name] ?? 0), 0);

// Delta is what happened between two answers; before is null for the first one.
class Delta {
  constructor(before, now) {
    this.last = before;
    // A process that started anew counts from zero.
    this.before = before?.metrics.values.started === now.metrics.values.started ? before : null;
    this.now = now;
  }

  rate(of) {
    if (!this.before) return 0;
    return (Math.max(of(this.now) - of(this.before), 0) * 1000) / Math.max(this.now.time - this.before.time, 1);
  }

  // member is the rate of a member's counter, null if it is not known.
  member(m, name) {
    const old = this.last?.members.find((o) => o.id === m.id)?.figures;
    if (!m.figures || !old || old.started !== m.figures.started) return null;
    return (Math.max((m.figures[name] ?? 0) - (old[name] ?? 0), 0) * 1000) / Math.max(this.now.time - this.last.time, 1);
  }

  // all is the rate of a counter of all members.
  all(name) { return this.now.members.reduce((sum, m) => sum + (this.member(m, name) ?? 0), 0); }
  writes() { return this.all("puts") + this.all("deletes"); }

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
  fill(main, h("h1", null, "Overview"), problem, board);
  let shown = null;
  let before = null;
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        const now = await get("status", {}, signal);
        if (!shown) fill(board, (shown = new Board(signal)).parts);
        shown.draw(now, new Delta(before, now));
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

// Board is what the overview shows. Its elements stay, so that the focus does too, and what they hold changes.
class Board {
  constructor(signal) {
    this.problems = h("div");
    this.tiles = [...tiles(cluster), ...tiles(node)];
    this.members = table("Members", ["Name", "Role", "State", "#Revision", "#Requests", "#Watchers", "#Memory", "Version", "ID", "Client URLs"], []);
    this.noLeader = h("div");
    this.alarms = h("div");
    this.statements = table("SQL statements", ["Statement", "#Since the start", "#Time in all", "#Mean in all", "#Mean now"], []);
    this.about = h("dl", { class: "meta" });
    this.thisNode = h("h2", { class: "above" });
    this.plots = plots(signal);
    const group = (part) => h("div", { class: part.length === 6 ? "tiles six" : "tiles" }, part.map((t) => t.box));
    this.parts = [
      this.problems, h("h2", { class: "above" }, "Cluster"), group(this.tiles.slice(0, cluster.length)),
      h("section", null, h("h2", null, "Members"), this.noLeader, this.members),
      h("section", null, h("h2", null, "Alarms"), this.alarms),
      this.thisNode, group(this.tiles.slice(cluster.length)), this.plots,
      h("section", null, h("h2", null, "SQL statements"), this.statements),
      h("section", null, h("h2", null, "About"), this.about), sizes(signal),
    ];
  }

  draw(now, delta) {
    fill(this.problems, now.alarms.map((a) => failed(new Error(`Alarm ${a.alarm}, raised by member ${a.member}`))),
      now.not_serving && failed(new Error(now.not_serving)));
    for (const t of this.tiles) t.draw(now, delta);
    members(now.members);
    this.plots.follows(leads(now) ? null : now.members.find((m) => m.leader));
    this.members.set(now.members.map((m) => member(m, now, delta)));
    fill(this.noLeader, now.leader === "" && notice("No leader is known."));
    fill(this.alarms, now.alarms.length === 0 ? h("p", { class: "empty" }, "No alarm is raised.")
      : table("Alarms", ["Alarm", "Member"], now.alarms.map((a) => [h("span", { class: "bad" }, a.alarm), h("span", { class: "mono id" }, a.member)])));
    fill(this.thisNode, `This node, ${now.name}`);
    this.statements.set(statements(now, delta.before));
    fill(this.about, versions(now));
  }
}

// tiles are the tiles of a list, each with its line.
function tiles(list) {
  return list.map(([label, number, value, unit]) => {
    const values = [];
    const big = h("div", { class: "number" });
    const small = h("div", { class: "unit" });
    const line = h("div");
    return {
      box: h("div", { class: "tile" }, h("div", { class: "label" }, label), big, small, line),
      draw(now, delta) {
        values.push(value(delta));
        if (values.length > kept) values.shift();
        fill(big, number(now, delta));
        fill(small, typeof unit === "function" ? unit(now) : unit);
        fill(line, spark(`${label}, the last minutes`, values));
      },
    };
  });
}

// member is the row of a member. One that is older, or could not be asked, has no figures.
function member(m, now, delta) {
  const f = m.figures;
  const requests = delta.member(m, "requests");
  return [
    [m.console ? h("a", { href: m.console }, m.name) : m.name || "–", m.self ? h("span", { class: "dim" }, " (this node)") : null],
    m.leader ? "leader" : m.state === "alive" ? "follower" : "",
    h("span", { class: m.state === "alive" ? "good" : m.state === "not started" ? "dim" : "bad" }, m.state),
    f ? f.revision : "–", requests === null ? "–" : `${rate(requests)}/s`, f ? count(f.watchers ?? 0) : "–", f ? size(f.memory_bytes ?? 0) : "–",
    m.version || now.product,
    h("span", { class: "mono id" }, m.id),
    h("span", { class: "mono" }, (m.client_urls ?? []).join(" ")),
  ];
}

const none = { count: 0, sum: 0 };

function statements(now, before) {
  return now.metrics.sql.filter((s) => s.count > 0).sort((a, b) => b.sum - a.sum).slice(0, 8).map((s) => {
    const old = before?.metrics.sql.find((o) => o.statement === s.statement);
    return [h("span", { class: "mono" }, s.statement), count(s.count), seconds(s.sum), millis(s.sum / s.count), or(millis, before ? mean(old ?? none, s) : null)];
  });
}

function versions(now) {
  const started = now.metrics.values.started;
  const facts = [
    ["sqlbrain", now.product], ["Serves etcd", now.etcd], ["Node", now.name], ["Term", count(now.term)],
    ["Commits", count(now.commits)], ["Cluster ID", now.cluster_id], ["Compacted rows to remove", count(now.metrics.values.compaction_lag ?? 0)],
    ["Up", started ? seconds(now.time / 1000 - started) : "unknown"],
  ];
  return facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
}
