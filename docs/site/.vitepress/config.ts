import { readFileSync } from 'node:fs';
import { defineConfig } from 'vitepress';
import { anchorOf } from '../../../test/unit/docs/anchor.ts';
import { plainMarkdown } from '../plain-markdown.ts';

const { sidebar } = JSON.parse(readFileSync(new URL('../dist/site.json', import.meta.url), 'utf8'));

/** Pages and menu are made by ../build.ts, which starts the generator. */
export default defineConfig({
  title: 'netdra',
  description: 'A Kubernetes network DRA driver for SR-IOV and DPDK',
  lang: 'en',
  srcDir: 'dist/pages',
  cacheDir: 'dist/cache',
  // Also what GitHub does with pages: no attributes in braces, and no links without brackets.
  markdown: {
    html: false,
    linkify: false,
    attrs: false,
    anchor: { slugify: anchorOf },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: plainMarkdown,
  },
  themeConfig: {
    sidebar,
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Install', link: '/operators.html' },
      { text: 'Troubleshooting', link: '/troubleshooting.html' },
      { text: 'Reference', link: '/reference.html' },
    ],
  },
});
