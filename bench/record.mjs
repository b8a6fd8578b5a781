// The report of record: docs/benchmarks.md, with charts for the most important figures.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chart } from './chart.mjs';

const DOCS = join(import.meta.dirname, '..', 'docs');
const IMAGES = 'images';

const INTRODUCTION = `# Benchmarks

\`npm run bench -- --report\` wrote this page, on the machine and with the versions below. It compares holdfast with other lock
libraries in one run. The ratios are similar on other machines; the absolute numbers are not. If a figure has a target, the table
says whether holdfast reached it (\`met\`, \`MISSED\`) and by how much. \`npm run bench -- --quick\` runs the most important parts in
under two minutes.
`;

/** `sections`: per workload its title, its lines and its charts. */
export function writeRecord({ where, sections, failures }) {
  mkdirSync(join(DOCS, IMAGES), { recursive: true });
  const parts = sections.map(({ id, about, lines, charts }) => {
    const images = charts.map(({ name, ...drawing }) => {
      const file = join(IMAGES, `bench-${name}.svg`);
      writeFileSync(join(DOCS, file), chart(drawing));
      return `![${drawing.title}](${file})\n`;
    });
    return [
      `## ${id[0].toUpperCase()}${id.slice(1)}`,
      '',
      about,
      '',
      ...images,
      fenced(lines),
    ].join('\n');
  });
  const incomplete = failures.length === 0 ? [] : ['## Incomplete', '', ...failures];
  const page = [INTRODUCTION, fenced([where]), ...parts, ...incomplete].join('\n');
  writeFileSync(join(DOCS, 'benchmarks.md'), `${page.trimEnd()}\n`);
}

function fenced(lines) {
  return ['```text', ...lines, '```', ''].join('\n');
}
