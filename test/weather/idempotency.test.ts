/** `holdfast/idempotency` in bad weather. */

import { adapters } from './idempotency.js';
import { survive } from './survives.js';

survive('idempotency', adapters);
