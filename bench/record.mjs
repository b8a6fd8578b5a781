// The report of record: docs/benchmarks.md, with a chart where a picture says it faster.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chart } from './chart.mjs';

const DOCS = join(import.meta.dirname, '..', 'docs');
const IMAGES = 'images';

const INTRODUCTION = `# Benchmarks

What \`npm run bench -- --report\` measured, on the machine and with the versions below: holdfast beside what people use today,
in one run. The ratios carry over to other machines; the absolute numbers do not, and promise nothing. Where holdfast set out
to reach a figure, the table says whether it did (\`met\`, \`MISSED\`) and by how much. \`npm run bench -- --quick\` runs
what tells most in under two minutes.
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
