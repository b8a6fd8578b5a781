/** `holdfast/redis-semaphore` in bad weather. */

import { adapters } from './redis-semaphore.js';
import { survive } from './survives.js';

survive('redis-semaphore', adapters);
