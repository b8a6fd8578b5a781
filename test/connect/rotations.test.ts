/** Passwords that change ten times; `rotations-full.test.ts` has the long form. */

import { rotations } from './rotations.js';

rotations({ held: 100, waiters: 20, rotations: 10, pause: 200 });
