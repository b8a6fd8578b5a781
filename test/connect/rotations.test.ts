/** Passwords that change ten times; the files of `rotations-full` have the long form. */

import { KINDS, rotations } from './rotations.js';

for (const kind of KINDS) rotations(kind, { held: 100, waiters: 20, rotations: 10, pause: 200 });
