/** `holdfast/bullmq` in bad weather. */

import { adapters } from './bullmq.js';
import { survive } from './survives.js';

survive('bullmq', adapters);
