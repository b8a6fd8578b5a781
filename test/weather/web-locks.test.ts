/** `request` of a manager in bad weather. */

import { survive } from './survives.js';
import { adapters } from './web-locks.js';

survive('web-locks', adapters);
