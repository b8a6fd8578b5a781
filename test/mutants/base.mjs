/** Mistakes in `js/base`. */

const ABORT = 'js/base/abort.ts';
const CHECKS = 'js/base/checks.ts';
const ERRORS = 'js/base/errors.ts';
const NAMES = 'js/base/names.ts';
const TOKENS = 'js/base/tokens.ts';

export default {
  tests: ['base/abort'],
  mistakes: [
    // A long-lived signal leaks.
    {
      file: ABORT,
      was: "      this.#signal.removeEventListener('abort', this.#aborted);\n",
      becomes: '',
    },
    // A signal that was used before ends no wait.
    { file: ABORT, was: '      listeners.delete(this.#signal);\n', becomes: '' },
    { file: ABORT, was: '      this.#jobs.delete(job);\n', becomes: '' },
    // The end of one call takes the signal from all others.
    { file: ABORT, was: 'if (this.#jobs.size > 0) return;', becomes: '' },
    // Node takes the eleventh listener for a leak.
    {
      file: ABORT,
      was: '(listeners.get(signal) ?? new AbortListener(signal)).add(job)',
      becomes: 'new AbortListener(signal).add(job)',
    },
    {
      file: ABORT,
      was: 'for (const job of this.#jobs) job();',
      becomes: '[...this.#jobs][0]?.();',
    },
    {
      file: CHECKS,
      was: 'value < least || value > most',
      becomes: 'value <= least || value > most',
      tests: ['base/checks'],
    },
    {
      file: CHECKS,
      was: '  if (value === undefined) return;\n',
      becomes: '',
      tests: ['base/checks'],
    },
    // A password is printed.
    {
      file: CHECKS,
      was: '`${what} must be a string, got a ${typeof value}`',
      becomes: '`${what} must be a string, got ${show(value)}`',
      tests: ['base/checks'],
    },
    {
      file: NAMES,
      was: 'const NAME_BYTES_MAX = 1024;',
      becomes: 'const NAME_BYTES_MAX = 1023;',
      tests: ['base/checks'],
    },
    {
      file: NAMES,
      was: 'names.length > NAMES_MAX',
      becomes: 'names.length >= NAMES_MAX',
      tests: ['base/checks'],
    },
    {
      file: ERRORS,
      was: "super('ERR_LOCK_UNMARKED', message, lock, { cause: details.cause });",
      becomes: "super('ERR_LOCK_UNMARKED', message, lock);",
      tests: ['base/errors'],
    },
    {
      file: ERRORS,
      was: "super('ERR_LOCK_NATIVE_LOAD', message, undefined, { cause });",
      becomes: "super('ERR_LOCK_NATIVE_LOAD', message);",
      tests: ['base/errors'],
    },
    {
      file: ERRORS,
      was: "kind === 'ERR_OUT_OF_RANGE' ? new RangeError(message)",
      becomes: "kind === 'ERR_OUT_OF_RANGE' ? new TypeError(message)",
      tests: ['base/checks'],
    },
    {
      file: TOKENS,
      was: 'const TICKS_PER_MS = 250;',
      becomes: 'const TICKS_PER_MS = 1000;',
      tests: ['base/tokens'],
    },
    {
      file: TOKENS,
      was: '(?:\\.([^ ]*))?(?: (.*))?$/s',
      becomes: '(?:\\.(.*))?(?: (.*))?$/s',
      tests: ['base/tokens'],
    },
    // The token of another manager is taken for one of this.
    {
      file: TOKENS,
      was: 'parts?.client === client ? parts.number : Number.NaN',
      becomes: 'parts?.number ?? Number.NaN',
      tests: ['base/tokens'],
    },
    {
      file: 'js/base/http.ts',
      was: 'const all = { ...PROBLEM_HEADERS, ...headers };',
      becomes: 'const all = { ...headers };',
      tests: ['base/answer'],
    },
    // A label is longer than the core allows.
    {
      file: 'js/base/label.ts',
      was: ' || written.length + more.length > WRITTEN_MAX',
      becomes: '',
      tests: ['base/label'],
    },
    // That of another user is told as gone.
    {
      file: 'js/base/label.ts',
      was: "!== 'ESRCH'",
      becomes: "=== 'EPERM_'",
      tests: ['base/tokens'],
    },
    {
      file: 'js/base/hash-slots.ts',
      was: 'crc16(hashTagOf(key) ?? key)',
      becomes: 'crc16(key)',
      tests: ['base/tokens'],
    },
  ],
};
