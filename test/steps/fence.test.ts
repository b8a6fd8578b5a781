/** Guards of data in Redis, broken off between any two of their steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('fence');
