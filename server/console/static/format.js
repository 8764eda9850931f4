// Figures and times as people read them.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en");

export const count = (n) => whole.format(Math.round(n));

export function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

// rate writes a number per second.
export const rate = (n) => (n >= 100 ? count(n) : n.toFixed(n >= 10 || n === 0 ? 0 : 1));

// millis writes seconds as milliseconds.
export const millis = (s) => `${(s * 1000).toFixed(s < 0.01 ? 2 : s < 0.1 ? 1 : 0)} ms`;

// time writes when a commit was made, in the time zone of the browser; nothing if that is not known.
export const time = (at) => (at ? h("time", { datetime: at, title: at }, new Date(at).toLocaleString()) : null);

export function seconds(s) {
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
