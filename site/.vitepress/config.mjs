// The site: see https://vitepress.dev/reference/site-config

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitepress';
import { SECTIONS } from '../navigation.mjs';
import { addressOf, BASE, HTML, PAGES, ROOT } from '../paths.mjs';

const API = 'docs/api/README.md';

export default defineConfig({
  title: 'holdfast',
  description: 'Distributed locks for Node services, held in Redis or Valkey',
  lang: 'en',
  base: BASE,
  head: [['link', { rel: 'icon', href: `${BASE}icon.svg` }]],
  srcDir: PAGES,
  outDir: HTML,
  cleanUrls: true,
  metaChunk: true,
  markdown: { anchor: { slugify }, languageAlias: { crontab: 'sh', redis: 'sh' } },
  themeConfig: {
    nav: ['Guide', 'Reference', 'Guarantees', 'Operations'].map((name) => {
      const { text, pages } = SECTIONS.find(({ text }) => text === name);
      return { text, link: addressOf(pages[0][1]) };
    }),
    sidebar: SECTIONS.map(({ text, pages }) => ({ text, items: pages.map(item) })),
    outline: [2, 3],
    search: { provider: 'local' },
    externalLinkIcon: true,
  },
});

/** An entry of the sidebar. The API is a tree: its pages stand in a folder for each kind. */
function item([text, file]) {
  const link = addressOf(file);
  return file === API ? { text, link, collapsed: true, items: kinds() } : { text, link };
}

function kinds() {
  const folder = join(ROOT, 'docs', 'api');
  const titles = {
    functions: 'Functions',
    classes: 'Classes and errors',
    interfaces: 'Interfaces',
    'type-aliases': 'Types',
  };
  return Object.entries(titles)
    .filter(([kind]) => existsSync(join(folder, kind)))
    .map(([kind, text]) => ({
      text,
      collapsed: true,
      items: readdirSync(join(folder, kind))
        .sort()
        .map((file) => ({
          text: file.replace(/\.md$/, ''),
          link: addressOf(`docs/api/${kind}/${file}`),
        })),
    }));
}

/** The anchor of a heading, as GitHub makes it, so that one link works there and here. */
function slugify(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');
}
