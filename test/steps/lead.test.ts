/** `lead` and `holdfast lead`, broken off between any two of their steps. */

import { breakEveryStep } from './harness.js';

breakEveryStep('lead');
