// Where the site is made, and where a file of the repository stands on it.

import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '..');
/** The Markdown that VitePress reads: here, since the pages import packages of `site/node_modules`. */
export const PAGES = join(import.meta.dirname, 'pages');
/** The site. */
export const HTML = join(ROOT, 'target', 'site');
/** Where the site stands on its server. */
export const BASE = process.env.HOLDFAST_SITE_BASE || '/';

/** The page of a file of the repository, such as `guide.md` of `docs/guide.md`; of code, `service.mjs.md`. */
export function pageOf(file) {
  const place = file.replace(/^docs\//, '').replace(/(^|\/)README\.md$/, '$1index.md');
  return place.endsWith('.md') ? place : `${place}.md`;
}

/** The address of the page of a file, from the root of the site. */
export function addressOf(file) {
  return `/${pageOf(file)}`.replace(/(?:\/index)?\.md$/, (end) => (end.startsWith('/') ? '/' : ''));
}
