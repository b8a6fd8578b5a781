// The demo's output in a terminal. Colours and signs beyond ASCII are used only where they can be shown.

const LABEL_WIDTH = 16;

const CODES = { bold: 1, dim: 2, red: 31, green: 32, cyan: 36 };

export class Report {
  #out;
  #lively;
  #coloured;
  #signs;
  #failed = 0;

  constructor(out, env) {
    this.#out = out;
    this.#lively = out.isTTY === true && env.TERM !== 'dumb';
    this.#coloured = this.#lively && !env.NO_COLOR;
    this.#signs = this.#lively && showsUnicode(env) ? UNICODE : ASCII;
  }

  /** How many checks have failed. */
  get failed() {
    return this.#failed;
  }

  title(text, story) {
    this.line();
    this.line(this.#paint('bold', text));
    for (const line of story) this.line(this.#paint('dim', line));
    this.line();
  }

  fact(label, value) {
    this.line(`  ${this.#paint('dim', label.padEnd(LABEL_WIDTH))}${value}`);
  }

  /** A promise of the library: kept or broken. */
  check(kept, text) {
    if (!kept) this.#failed++;
    this.line(`  ${kept ? this.#good() : this.#bad()} ${text}`);
  }

  /** Why the demo could not go on. */
  failure(text) {
    this.#failed++;
    this.line(`\n${this.#bad()} ${text}`);
  }

  /** An expected failure. */
  mishap(text) {
    this.line(`  ${this.#bad()} ${this.#paint('red', text)}`);
  }

  /** Rows of cells, in columns as wide as they must be. Numbers stand at the right. */
  table(head, rows) {
    const widths = head.map((_, column) =>
      Math.max(...[head, ...rows].map((row) => String(row[column]).length)),
    );
    const format = (row) =>
      row
        .map((cell, column) =>
          typeof cell === 'number'
            ? String(cell).padStart(widths[column])
            : cell.padEnd(widths[column]),
        )
        .join('   ')
        .trimEnd();
    this.line(`  ${this.#paint('dim', format(head))}`);
    for (const row of rows) this.line(`  ${format(row)}`);
  }

  /** A bar of the sold items: first those in stock, then those that were oversold. */
  bar(sold, stock, perSign) {
    const within = this.#signs.bar.repeat(Math.floor(Math.min(sold, stock) / perSign));
    const beyond = this.#signs.over.repeat(Math.ceil(Math.max(sold - stock, 0) / perSign));
    return this.#paint('green', within) + this.#paint('red', beyond);
  }

  line(text = '') {
    this.#out.write(`${text}\n`);
  }

  /** A line that the next one replaces; only people see it, never a file. */
  progress(text) {
    if (this.#lively) this.#out.write(`\r\x1b[K${text && `  ${this.#paint('cyan', text)}`}`);
  }

  #good() {
    return this.#paint('green', this.#signs.good);
  }

  #bad() {
    return this.#paint('red', this.#signs.bad);
  }

  #paint(style, text) {
    return this.#coloured && text !== '' ? `\x1b[${CODES[style]}m${text}\x1b[0m` : text;
  }
}

const UNICODE = { good: '✓', bad: '✗', bar: '█', over: '▒' };
const ASCII = { good: '[ok]', bad: '[!!]', bar: '#', over: '!' };

function showsUnicode(env) {
  if (process.platform === 'win32') return env.WT_SESSION !== undefined;
  return /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || '');
}

/** A duration for people: `8 ms`, `1.25 s`. */
export function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** The value that `share` (0 to 1) of the values do not exceed. */
export function percentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(Math.ceil(sorted.length * share) - 1, 0)] ?? 0;
}
