import { h } from "./dom.js";

const width = 120;
const height = 28;

// spark draws the last values as a line, from zero up.
export function spark(label, values) {
  const svg = h("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (values.length < 2) return svg;
  const top = Math.max(...values, 1e-9);
  const at = (v, i) => `${((i * width) / (values.length - 1)).toFixed(1)} ${(height - 2 - (v / top) * (height - 4)).toFixed(1)}`;
  const line = `M${values.map(at).join("L")}`;
  svg.append(h("path", { class: "area", d: `${line}L${width} ${height}L0 ${height}Z` }), h("path", { d: line }));
  return svg;
}

// bar shows a part of a whole, from 0 to 1.
export function bar(part) {
  return h("svg", { class: "bar", viewBox: "0 0 120 8", "aria-hidden": "true" },
    h("rect", { class: "back", width: 120, height: 8, rx: 3 }), h("rect", { width: Math.max(120 * part, 1).toFixed(1), height: 8, rx: 3 }));
}
