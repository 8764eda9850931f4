// Which files of the repository are pages, where they are on the site, and how they are found.
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))
const source = 'https://github.com/sqlbrain/sqlbrain/blob/main/'

// moved has the pages outside docs/. Every file in docs/ is a page as well, at its own path.
const moved = {
  'README.md': 'overview.md',
  'CHANGELOG.md': 'changelog.md',
  'SECURITY.md': 'operate/security.md',
  'deploy/helm/sqlbrain/README.md': 'operate/helm.md',
  'ARCHITECTURE.md': 'developers/architecture.md',
  'CONTRIBUTING.md': 'developers/contributing.md',
  'integration/README.md': 'developers/integration.md',
  'server/cluster/DESIGN.md': 'developers/design-cluster.md',
  'server/replica/DESIGN.md': 'developers/design-replica.md',
  'server/mvcc/write/DESIGN.md': 'developers/design-write.md',
  'server/mvcc/read/DESIGN.md': 'developers/design-read.md',
  'server/mvcc/keyspace/DESIGN.md': 'developers/design-keyspace.md',
  'server/auth/guard/DESIGN.md': 'developers/design-guard.md',
  'sqlstore/DESIGN.md': 'developers/design-sqlstore.md',
  'watch/DESIGN.md': 'developers/design-watch.md'
}

// notes are the developers' notes of docs/, which have a navigation of their own.
const notes = /^docs\/(?=(model|simulation|performance|releasing)\.md$|benchmarks\/)/

export const rewrite = (id) =>
  moved[id] ?? id.replace(notes, 'developers/').replace(/^docs\//, '').replace(/(^|\/)README\.md$/, '$1index.md')

// excluded are the Markdown files that are not pages.
export const excluded = ['bin/**', 'dist/**', '.github/**', 'integration/*/**', 'deploy/*.md', 'cmd/**']

// links returns a markdown-it plugin that turns links between files into links between pages, and links to other files of
// the repository into links to its source. A link to a file that does not exist is an error.
export function links(md) {
  md.core.ruler.push('repository-links', (state) => {
    const file = state.env.realPath ?? state.env.path
    if (!file || !state.env.relativePath) return
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        const attribute = token.type === 'link_open' ? 'href' : token.type === 'image' ? 'src' : undefined
        if (attribute) token.attrSet(attribute, resolve(file, token.attrGet(attribute)))
      }
    }
  })
}

function resolve(file, href) {
  if (/^([a-z]+:|#)/.test(href)) return href
  const [name, anchor] = href.split('#')
  const target = path.relative(root, path.resolve(path.dirname(file), decodeURI(name)))
  if (!fs.existsSync(path.join(root, target))) throw new Error(`${path.relative(root, file)}: ${href} does not exist`)
  const suffix = anchor ? '#' + anchor : ''
  if (isPage(target)) return '/' + rewrite(target).replace(/index\.md$/, '') + suffix
  if (isPage(target + '/README.md')) return '/' + rewrite(target + '/README.md').replace(/index\.md$/, '') + suffix
  if (/\.(svg|png)$/.test(target)) return href
  return source + target + suffix
}

const isPage = (id) => id in moved || (/^docs\/.*\.md$/.test(id) && fs.existsSync(path.join(root, id)))
