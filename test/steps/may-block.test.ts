/** `mayBlock`, broken off between any two of its steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('may-block');
