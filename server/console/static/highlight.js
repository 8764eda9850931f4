import { h } from "./dom.js";

// most bounds the text that is coloured: each word of it becomes an element.
const most = 200_000;

const json = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b/g;
const yamlKey = /^(\s*(?:- )*)((?:"[^"]*"|'[^']*'|[^\s"'#:-][^:]*)):(?=\s|$)/;
const yamlWord = /^(?:true|false|null|~|-?\d[\d.eE+-]*)$/;

// highlight returns elements and texts: the text of JSON or YAML with its parts coloured.
export function highlight(text) {
  if (text.length > most) return [text];
  return /^\s*[{[]/.test(text) ? ofJSON(text) : text.split("\n").flatMap((line, i) => (i > 0 ? ["\n", ...ofYAML(line)] : ofYAML(line)));
}

const part = (kind, text) => h("span", { class: `hl-${kind}` }, text);

function ofJSON(text) {
  const out = [];
  let end = 0;
  for (const m of text.matchAll(json)) {
    out.push(text.slice(end, m.index));
    end = m.index + m[0].length;
    if (m[2]) out.push(part("key", m[1]), m[2]);
    else out.push(part(m[1] ? "text" : "word", m[0]));
  }
  out.push(text.slice(end));
  return out;
}

function ofYAML(line) {
  const m = yamlKey.exec(line);
  if (!m) {
    const item = /^(\s*(?:- )+)(.*)$/.exec(line);
    return item ? [item[1], scalar(item[2])] : [line];
  }
  const rest = line.slice(m[0].length);
  const space = /^\s*/.exec(rest)[0];
  return [m[1], part("key", m[2]), ":", space, scalar(rest.slice(space.length))];
}

const scalar = (text) => (yamlWord.test(text) ? part("word", text) : text && !/^[|>&*!{[]/.test(text) ? part("text", text) : text);
