import { h } from "./dom.js";

// most bounds the text that is coloured, and parts the parts of it that are: each becomes an element.
const most = 200_000;
const parts = 10_000;

// A string that does not end is one too, up to the end of the text. Otherwise each of its quotes would be tried as the
// start of a string, up to the end of the text.
const json = /("[^"\\]*(?:\\[^][^"\\]*)*(?:"|\\?$))(\s*:)?|\b(?:true|false|null)\b|-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b/g;
const yamlKey = /^(\s*(?:- )*)((?:"[^"]*"|'[^']*'|[^\s"'#:-][^:]*)):(?=\s|$)/;
const yamlWord = /^(?:true|false|null|~|-?\d[\d.eE+-]*)$/;

// highlight returns elements and texts: the text of JSON or YAML with its parts coloured.
export function highlight(text) {
  if (text.length > most) return [text];
  const coloured = new Coloured();
  if (/^\s*[{[]/.test(text)) ofJSON(coloured, text);
  else ofYAML(coloured, text);
  return coloured.done();
}

// Coloured collects texts, and parts as elements as long as these are not too many.
class Coloured {
  constructor() {
    this.out = [];
    this.plain = [];
    this.left = parts;
  }

  text(...texts) { this.plain.push(...texts); }

  part(kind, text) {
    if (this.left === 0) {
      this.text(text);
      return;
    }
    this.left--;
    this.out.push(this.plain.join(""), h("span", { class: `hl-${kind}` }, text));
    this.plain = [];
  }

  done() { return [...this.out, this.plain.join("")]; }
}

function ofJSON(to, text) {
  let end = 0;
  for (const m of text.matchAll(json)) {
    to.text(text.slice(end, m.index));
    end = m.index + m[0].length;
    if (m[2]) {
      to.part("key", m[1]);
      to.text(m[2]);
    } else to.part(m[1] ? "text" : "word", m[0]);
  }
  to.text(text.slice(end));
}

function ofYAML(to, text) {
  text.split("\n").forEach((line, i) => {
    if (i > 0) to.text("\n");
    const m = yamlKey.exec(line);
    const item = m ?? /^(\s*(?:- )+)(.*)$/.exec(line);
    if (!item) {
      to.text(line);
      return;
    }
    to.text(item[1]);
    if (!m) {
      scalar(to, item[2]);
      return;
    }
    const rest = line.slice(m[0].length);
    const space = /^\s*/.exec(rest)[0];
    to.part("key", m[2]);
    to.text(":", space);
    scalar(to, rest.slice(space.length));
  });
}

function scalar(to, text) {
  if (yamlWord.test(text)) to.part("word", text);
  else if (text && !/^[|>&*!{[]/.test(text)) to.part("text", text);
  else to.text(text);
}
