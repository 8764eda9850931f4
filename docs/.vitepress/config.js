import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { renderMermaidSVG } from 'beautiful-mermaid'
import { excluded, links, rewrite } from './pages.js'
import { nav, sidebar } from './navigation.js'

const version = process.env.VERSION ?? 'development'

export default defineConfig({
  title: 'sqlbrain',
  description: 'An etcd v3 server that keeps its data in one SQL table',
  lang: 'en',
  base: process.env.DOCS_BASE ?? '/',
  srcDir: '..',
  srcExclude: excluded,
  outDir: '../bin/docs',
  cacheDir: './node_modules/.cache/vitepress',
  rewrites: rewrite,
  head: [['link', { rel: 'icon', href: 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 16 16%22%3E%3Crect width=%2216%22 height=%2216%22 rx=%223%22 fill=%22%231a5fb4%22/%3E%3Cpath d=%22M3 5h10M3 8h10M3 11h10%22 stroke=%22white%22 stroke-width=%221.5%22/%3E%3C/svg%3E' }]],
  markdown: {
    theme: { light: 'github-light-default', dark: 'github-dark-default' },
    config(md) {
      md.use(links)
      const fence = md.renderer.rules.fence
      md.renderer.rules.fence = (tokens, i, ...rest) =>
        tokens[i].info.trim() === 'mermaid' ? diagram(tokens[i].content) : fence(tokens, i, ...rest)
    }
  },
  vite: { plugins: [vueFromHere()] },
  themeConfig: {
    nav: [...nav, { text: version, link: '/changelog' }],
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: 'https://github.com/sqlbrain/sqlbrain', ariaLabel: 'source' }]
  }
})

// diagram draws a Mermaid diagram in the colours of the page, with labels of 14 pixels: the renderer's have 11. It names
// fonts of another site, which the page must not ask for.
function diagram(text) {
  const svg = renderMermaidSVG(text, {
    bg: 'var(--vp-c-bg)', fg: 'var(--vp-c-text-1)', muted: 'var(--vp-c-text-2)', font: 'inherit', transparent: true,
    padding: 8, nodeSpacing: 20, layerSpacing: 30
  })
  const scaled = svg.replace(/ (width|height)="([\d.]+)"/g, (all, side, pixels, at) =>
    at < svg.indexOf('>') ? ` ${side}="${Math.ceil((pixels * 14) / 11)}"` : all)
  const drawn = JSON.stringify(scaled.replace(/@import url\([^)]*\);?/g, ''))
  return `<div class="diagram" role="figure" aria-label="diagram" tabindex="0" v-html="${drawn.replace(/&/g, '&amp;').replace(/"/g, '&quot;')}"></div>\n`
}

// vueFromHere finds Vue for the pages that are outside of docs/, and so of its node_modules.
function vueFromHere() {
  const here = fileURLToPath(import.meta.url)
  return {
    name: 'vue-from-here',
    enforce: 'pre',
    resolveId(id, importer) {
      if (/^vue($|\/)/.test(id) && importer?.endsWith('.md')) return this.resolve(id, here, { skipSelf: true })
    }
  }
}
