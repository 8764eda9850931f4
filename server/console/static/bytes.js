// Keys are bytes. The server's JSON has them in base64, its parameters in base64 for URLs, the page's address with %NN,
// and people read and type them as text, with \xNN for what is no text and \\ for \.

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function fromBase64(text) {
  return Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0));
}

export function toBase64(bytes) {
  let binary = "";
  for (const b of bytes) binary += String.fromCharCode(b);
  return btoa(binary);
}

export const toParam = (bytes) => toBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
export const fromParam = (text) => fromBase64(text.replaceAll("-", "+").replaceAll("_", "/"));

// toLink writes bytes as part of the page's address, readable where they are ASCII.
export const toLink = (bytes) => Array.from(bytes, (b) => {
  const c = String.fromCharCode(b);
  return /[\w\-.~/:@$!*,;=+]/.test(c) ? c : `%${b.toString(16).padStart(2, "0")}`;
}).join("");

// fromLink is the inverse of toLink.
export function fromLink(text) {
  const encoder = new TextEncoder();
  return Uint8Array.from(text.split(/(%[0-9a-fA-F]{2})/).flatMap((part, i) => (i % 2 === 0 ? [...encoder.encode(part)] : parseInt(part.slice(1), 16))));
}

const hex = (b) => `\\x${b.toString(16).padStart(2, "0")}`;

// show writes bytes as text.
export function show(bytes) {
  let text;
  try {
    text = utf8.decode(bytes);
  } catch {
    return Array.from(bytes, (b) => (b === 0x5c ? "\\\\" : b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : hex(b))).join("");
  }
  let out = "";
  for (const c of text) {
    if (c === "\\") out += "\\\\";
    else if (/[\p{L}\p{M}\p{N}\p{P}\p{S} ]/u.test(c)) out += c;
    else out += Array.from(new TextEncoder().encode(c), hex).join("");
  }
  return out;
}

// read is the inverse of show.
export function read(text) {
  const out = [];
  const parts = text.split(/(\\x[0-9a-fA-F]{2}|\\\\)/);
  parts.forEach((part, i) => {
    if (i % 2 === 0) out.push(...new TextEncoder().encode(part));
    else out.push(part === "\\\\" ? 0x5c : parseInt(part.slice(2), 16));
  });
  return Uint8Array.from(out);
}

export const startsWith = (bytes, prefix) => prefix.every((b, i) => bytes[i] === b);
