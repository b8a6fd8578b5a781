// A picture of what the demo prints, as an SVG: `npm run demo -- --picture docs/images/demo.svg`.

import { writeFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';

const COLUMN = 7.85;
const ROW = 19;
const MARGIN = 20;
const COLOURS = { 2: '#8b949e', 31: '#ff7b72', 32: '#3fb950', 36: '#39c5cf' };

/** Stands in for a terminal: passes everything on to `out`, and remembers it. */
export class Picture {
  isTTY = true;
  #out;
  #text = '';

  constructor(out) {
    this.#out = out;
  }

  write(text) {
    this.#text += text;
    this.#out.write(text);
  }

  /** Writes the lines that were printed before the line that contains `end`. */
  save(file, end) {
    // A line that shows progress is erased before the next one.
    const lines = this.#text.split('\n').map((line) => line.split('\x1b[K').at(-1));
    const shown = lines.slice(
      0,
      lines.findIndex((line) => line.includes(end)),
    );
    while (shown[0] === '') shown.shift();
    while (shown.at(-1) === '') shown.pop();
    writeFileSync(file, svg(shown));
  }
}

function svg(lines) {
  const columns = Math.max(...lines.map((line) => stripVTControlCharacters(line).length));
  const width = Math.ceil(columns * COLUMN + 2 * MARGIN);
  const height = lines.length * ROW + 2 * MARGIN;
  const rows = lines.map((line, index) => {
    const y = MARGIN + (index + 0.75) * ROW;
    return `<text x="${MARGIN}" y="${y}" xml:space="preserve">${spans(line)}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    '<title>The demo of holdfast in a terminal</title>',
    `<rect width="${width}" height="${height}" rx="8" fill="#0d1117"/>`,
    '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#e6edf3">',
    ...rows,
    '</g>',
    '</svg>',
    '',
  ].join('\n');
}

/** The parts of a line, each in the style of the code before it. */
function spans(line) {
  const [plain, ...styled] = line.split('\x1b[');
  const parts = styled.map((part) => {
    const [, code, text] = /^(\d+)m(.*)$/s.exec(part);
    if (text === '') return '';
    if (code === '1') return `<tspan font-weight="bold">${escaped(text)}</tspan>`;
    return COLOURS[code] === undefined
      ? escaped(text)
      : `<tspan fill="${COLOURS[code]}">${escaped(text)}</tspan>`;
  });
  return escaped(plain) + parts.join('');
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
