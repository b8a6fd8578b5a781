/** The drop-in package for redis-semaphore, broken off between any two of its steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('semaphore');
