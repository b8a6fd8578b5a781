/** `holdfast/nest` in bad weather. */

import { adapters } from './nest.js';
import { survive } from './survives.js';

survive('nest', adapters);
