// Writes the pages of the site from the Markdown of the repository, and from the code that it links to.

import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, extname, join, relative } from 'node:path/posix';
import { SECTIONS } from './navigation.mjs';
import { PAGES, pageOf, ROOT } from './paths.mjs';

/** What the repository shows as code has pages of its own on the site. */
const INSTEAD = { 'js/index.ts': 'docs/api/README.md' };

/** The files that have a page, or are about to. */
let known;

/** Writes all pages anew: those of the navigation, and whatever they link to. */
export function writePages() {
  rmSync(PAGES, { recursive: true, force: true });
  cpSync(join(ROOT, 'docs', 'images'), join(PAGES, 'images'), { recursive: true });
  cpSync(join(import.meta.dirname, 'icon.svg'), join(PAGES, 'public', 'icon.svg'));
  known = new Set(['README.md', ...SECTIONS.flatMap(({ pages }) => pages.map(([, file]) => file))]);
  // A set that grows while it is walked: each page adds the files that it links to.
  for (const file of known) {
    const page = join(PAGES, pageOf(file));
    mkdirSync(dirname(page), { recursive: true });
    writeFileSync(page, textOf(file));
  }
}

function textOf(file) {
  if (statSync(join(ROOT, file)).isDirectory()) return folder(file);
  if (!file.endsWith('.md')) return code(file);
  const text = linked(file, readFileSync(join(ROOT, file), 'utf8'));
  return file === 'README.md' ? home(text) : text;
}

/** The home page: the title and first sentence of the README above the rest of it. */
function home(text) {
  const [title, tagline, ...rest] = text.split('\n\n');
  const name = title.replace('# ', '');
  const actions = [
    { text: 'Guide', link: '/guide' },
    { text: 'Reference', link: '/reference', theme: 'alt' },
    { text: 'Safety', link: '/safety', theme: 'alt' },
  ];
  const front = JSON.stringify({ layout: 'home', hero: { name, tagline, actions } });
  return ['---', front, '---', '', rest.join('\n\n')].join('\n');
}

/** A folder without a README: its files. */
function folder(path) {
  const files = readdirSync(join(ROOT, path)).map((name) => `${path}/${name}`);
  return [`# ${path}`, ...files.map((file) => `## ${basename(file)}\n\n${fenced(file)}`)].join(
    '\n\n',
  );
}

function code(file) {
  return `# ${file}\n\n${fenced(file)}`;
}

function fenced(file) {
  const text = readFileSync(join(ROOT, file), 'utf8').trimEnd();
  return `\`\`\`\`${extname(file).slice(1)}\n${text}\n\`\`\`\`\n`;
}

/** The text of a page whose links lead to pages of the site. Blocks of code stay as they are. */
function linked(file, text) {
  return text
    .split(/(^```.*?^```$)/ms)
    .map((part) =>
      part.startsWith('```')
        ? part
        : part
            .replace(/(\]\()([^)\s]+)(?=\))/g, (_, before, target) => before + link(file, target))
            .replace(/(src=")([^"]+)(?=")/g, (_, before, target) => before + link(file, target)),
    )
    .join('');
}

/** What a link of a file becomes. */
function link(file, target) {
  if (/^(\w+:|#)/.test(target)) return target;
  const [path, anchor] = target.split('#');
  const from = dirname(pageOf(file));
  const to = targetOf(join(dirname(file), path));
  if (to === undefined) return target; // VitePress tells of it, with the page's name
  if (to.startsWith('docs/images/')) return upward(relative(from, to.slice('docs/'.length)));
  known.add(to);
  return upward(relative(from, pageOf(to))) + (anchor === undefined ? '' : `#${anchor}`);
}

function upward(path) {
  return path.startsWith('.') ? path : `./${path}`;
}

/** The file or folder of the repository whose page a link leads to. */
function targetOf(path) {
  const clean = path.replace(/\/$/, '');
  if (INSTEAD[clean] !== undefined) return INSTEAD[clean];
  const readme = `${clean}/README.md`;
  if (existsSync(join(ROOT, readme))) return readme;
  return existsSync(join(ROOT, clean)) ? clean : undefined;
}
