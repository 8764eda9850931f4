// Checks the built site: every link leads to a page and, with an anchor, to an element of it; every page is in the
// navigation; and no page, script or style asks another host for anything.
import fs from 'node:fs'
import path from 'node:path'
import { sidebar } from './navigation.js'
import { root } from './pages.js'

const out = path.join(root, 'bin/docs')
const base = process.env.DOCS_BASE ?? '/'
const files = fs.readdirSync(out, { recursive: true }).filter((f) => fs.statSync(path.join(out, f)).isFile())
const pages = new Map()
const errors = []

for (const file of files) {
  const text = fs.readFileSync(path.join(out, file), 'utf8')
  if (file.endsWith('.html')) pages.set(file, text)
  for (const request of requests(file, text)) errors.push(`${file} asks another host: ${request}`)
}

for (const [file, html] of pages) {
  const body = html.replace(/<script[\s\S]*?<\/script>/g, '')
  for (const [, href] of body.matchAll(/<a\b[^>]*?\shref="([^"]*)"/g)) {
    const problem = dead(file, href.replace(/&amp;/g, '&'))
    if (problem) errors.push(`${file}: ${href}: ${problem}`)
  }
}

const listed = new Set(Object.values(sidebar).flat().flatMap((g) => g.items).map((p) => html(p.link.split('#')[0])))
for (const file of pages.keys()) if (file !== '404.html' && !listed.has(file)) errors.push(`${file} is not in navigation.js`)

if (errors.length > 0) {
  console.error([...new Set(errors)].join('\n'))
  process.exit(1)
}
console.log(`${pages.size} pages: every link leads to a page and an anchor that exist, and nothing is asked of other hosts`)

// requests returns what a file loads from other hosts. Links are not loaded.
function requests(file, text) {
  const patterns = {
    html: /<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*?\s(?:src|srcset|data)="(?:https?:)?\/\/[^"]*"|<link\b[^>]*?href="(?:https?:)?\/\/[^"]*"|@import[^;]*\/\/[^;]*/g,
    css: /(?:url\(|@import)\s*['"]?(?:https?:)?\/\/[^)'"]*/g,
    js: /@import url\([^)]*|(?:fetch|import|importScripts)\(\s*['"`](?:https?:)?\/\/[^'"`]*/g
  }
  return text.match(patterns[path.extname(file).slice(1)] ?? /$^/) ?? []
}

// dead returns why a link leads nowhere, if it does.
function dead(from, href) {
  if (/^[a-z]+:/.test(href)) return
  const [name, anchor] = href.split('#')
  if (name !== '' && !name.startsWith(base)) return 'is not below ' + base
  const target = name === '' ? from : html('/' + decodeURI(name.slice(base.length)))
  if (!pages.has(target)) return fs.existsSync(path.join(out, target)) ? undefined : 'no such page'
  if (anchor && !pages.get(target).includes(` id="${decodeURIComponent(anchor)}"`)) return 'no such anchor'
}

// html returns the file of a link without a base.
function html(link) {
  const file = link.slice(1)
  if (file === '' || file.endsWith('/')) return file + 'index.html'
  return path.extname(file) === '' ? file + '.html' : file
}
