/** `holdfast/fence` in bad weather. */

import { adapters } from './fence.js';
import { survive } from './survives.js';

survive('fence', adapters);
