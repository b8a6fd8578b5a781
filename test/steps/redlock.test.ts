/** The drop-in packages for redlock, broken off between any two of their steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('redlock');
