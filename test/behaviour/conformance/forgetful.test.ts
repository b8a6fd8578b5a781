/**
 * The promises of holdfast, for a caller with as few references as possible, while garbage is collected. A failure prints
 * its seed, and `HOLDFAST_SEED` repeats it.
 */

import { Dice } from '../../support/dice.js';
import { Forgetful } from './forgetful.js';
import { EmbeddedHost } from './place.js';
import { serverHosts } from './servers.js';
import { tryAllOn } from './suite.js';

const seed = Number(process.env['HOLDFAST_SEED'] ?? new Dice().below(2 ** 31));

for (const host of [new EmbeddedHost(), ...serverHosts().slice(0, 1)]) {
  tryAllOn(new Forgetful(host, seed));
}
