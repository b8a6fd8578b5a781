// Finds links of the site that lead nowhere, also to headings that are not there.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The links of the pages in a folder that lead nowhere, as `page: link`. `base` is where the folder stands on
 * its server, such as `/`.
 */
export function deadLinks(folder, base) {
  const files = readdirSync(folder, { recursive: true }).map((file) => file.replaceAll('\\', '/'));
  const pages = new Map(
    files
      .filter((file) => file.endsWith('.html'))
      .map((file) => [file, readFileSync(join(folder, file), 'utf8')]),
  );
  const anchors = new Map([...pages].map(([file, text]) => [file, attributes(text, 'id')]));
  return [...pages].flatMap(([file, text]) => {
    const links = new Set([...attributes(text, 'href'), ...attributes(text, 'src')]);
    return [...links].filter((link) => isDead(link, file)).map((link) => `${file}: ${link}`);
  });

  function isDead(link, from) {
    const url = new URL(link, `http://site${base}${from}`);
    if (url.host !== 'site') return false;
    if (!url.pathname.startsWith(base)) return true;
    const path = decodeURIComponent(url.pathname.slice(base.length));
    const file = [path, `${path}.html`, `${path}index.html`].find((each) => files.includes(each));
    if (file === undefined) return true;
    const anchor = decodeURIComponent(url.hash.slice(1));
    return anchor !== '' && !(anchors.get(file)?.has(anchor) ?? false);
  }
}

function attributes(html, name) {
  const found = html.matchAll(new RegExp(`\\s${name}="([^"]*)"`, 'g'));
  return new Set(Array.from(found, ([, value]) => value.replaceAll('&amp;', '&')));
}
