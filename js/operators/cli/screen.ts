/** Draws on a terminal in place, and restores it afterwards. */

import { paint } from './terminal.js';

const ENTER = '\x1b[?1049h\x1b[?25l';
const LEAVE = '\x1b[?25h\x1b[?1049l';
const HOME = '\x1b[H';
const TO_END_OF_LINE = '\x1b[K';
const TO_END_OF_SCREEN = '\x1b[J';
const CTRL_C = '\x03';

/** The line of the table's head: the title and an empty line are above it. */
const HEAD = 2;

/** Takes the terminal over until it is closed. */
export class Screen {
  #lines: readonly string[] = [];
  readonly #onResize = () => this.#draw();
  readonly #onKey: (key: Buffer) => void;
  readonly #onExit = () => this.close();

  /** Calls `quit` when the user types q or Ctrl-C. */
  constructor(quit: () => void) {
    this.#onKey = (key) => {
      if (['q', 'Q', CTRL_C].includes(key.toString())) quit();
    };
    process.stdout.write(ENTER);
    process.stdout.on('resize', this.#onResize);
    process.on('exit', this.#onExit);
    if (process.stdin.isTTY) process.stdin.setRawMode(true).on('data', this.#onKey);
  }

  /** Shows as much of these lines as fits. */
  show(lines: readonly string[]): void {
    this.#lines = lines;
    this.#draw();
  }

  /** Restores the terminal. */
  close(): void {
    process.stdout.off('resize', this.#onResize);
    process.off('exit', this.#onExit);
    if (process.stdin.isTTY) process.stdin.off('data', this.#onKey).setRawMode(false).pause();
    process.stdout.write(LEAVE);
  }

  #draw(): void {
    const { rows, columns } = process.stdout;
    const fit = this.#lines.slice(0, rows);
    if (fit.length < this.#lines.length) {
      fit[rows - 1] = `… and ${this.#lines.length - rows + 1} more`;
    }
    const drawn = fit.map((line, i) => {
      const cut = [...line].slice(0, columns).join('');
      return (i === HEAD ? paint(process.stdout, 'bold', cut) : cut) + TO_END_OF_LINE;
    });
    process.stdout.write(HOME + drawn.join('\r\n') + TO_END_OF_SCREEN);
  }
}
