/** `holdfast/node-cron` in bad weather. */

import { adapters } from './node-cron.js';
import { survive } from './survives.js';

survive('node-cron', adapters);
