/** Passwords that change every second for a minute, under a thousand locks. */

import { FULL, rotations } from '../rotations.js';

rotations('one server', FULL);
