/** `holdfast/redlock` and `holdfast/redlock4` in bad weather. */

import { adapters } from './redlock.js';
import { survive } from './survives.js';

survive('redlock', adapters);
