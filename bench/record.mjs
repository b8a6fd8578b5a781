// The report of record: docs/benchmarks.md, with charts for the most important figures.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chart } from './chart.mjs';

const DOCS = join(import.meta.dirname, '..', 'docs');
const IMAGES = 'images';

const INTRODUCTION = `# Benchmarks

\`npm run bench -- --report\` wrote this page from one run on the machine below; \`npm run bench -- --quick\` takes under two minutes. All
figures are medians.
`;

/** `sections`: per workload its question, an explanation, a table and charts. */
export function writeRecord({ where, sections, failures }) {
  mkdirSync(join(DOCS, IMAGES), { recursive: true });
  for (const { charts } of sections) {
    for (const { name, ...drawing } of charts) {
      writeFileSync(join(DOCS, fileOf(name)), chart(drawing));
    }
  }
  writeFileSync(join(DOCS, 'benchmarks.md'), pageOf({ where, sections, failures }));
}

function pageOf({ where, sections, failures }) {
  const parts = sections.map(({ question, about, table, charts }) => {
    const images = charts.flatMap(({ name, title }) => [`![${title}](${fileOf(name)})`, '']);
    return [`## ${question}`, '', about, '', ...images, ...table, ''].join('\n');
  });
  const page = [INTRODUCTION, fenced([where]), ...parts, ...listed('What failed?', failures)].join(
    '\n',
  );
  return `${page.trimEnd()}\n`;
}

function listed(question, lines) {
  return lines.length === 0 ? [] : [`## ${question}\n`, fenced(lines)];
}

function fileOf(name) {
  return join(IMAGES, `bench-${name}.svg`);
}

function fenced(lines) {
  return ['```text', ...lines, '```', ''].join('\n');
}
