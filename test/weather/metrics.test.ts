/** `holdfast/prometheus` and `holdfast/opentelemetry` in bad weather. */

import { adapters } from './metrics.js';
import { survive } from './survives.js';

survive('metrics', adapters);
