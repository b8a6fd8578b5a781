/** A login that changes under a lock, and between its steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('login');
