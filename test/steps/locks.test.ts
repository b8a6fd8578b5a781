/** Locks of several steps, broken off between any two of them. */

import { breakEveryStep } from './harness.js';

breakEveryStep('locks');
