/** `holdfast run` and `run --once`, broken off between any two of their steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('cli');
