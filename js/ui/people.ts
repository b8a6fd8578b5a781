/** What the page's scripts share with the command line: they load it as `people.mjs`. */

export { printable } from '../internal/printable.js';
export { clock, human, moment } from '../internal/time.js';
