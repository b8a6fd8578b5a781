/** Passwords that change every second for a minute, under a thousand locks. */

import { rotations } from './rotations.js';

rotations({ held: 1_000, waiters: 100, rotations: 60, pause: 1_000 });
