/** The module that the page's scripts share with the server and the command line: they load it as `shared.mjs`. */

export { printable } from '../../base/printable.js';
export { clock, human, moment } from '../../base/time.js';
export { CLIENT_DIGITS, heldFor, restOf, shortName } from '../views/words.js';
export { History, PER_LOCK_MAX } from './history.js';
