/** The middlewares for idempotency, broken off between any two of their steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('idempotency');
