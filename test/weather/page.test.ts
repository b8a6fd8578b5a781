/** `holdfast/ui` in bad weather. */

import { adapters } from './page.js';
import { survive } from './survives.js';

survive('page', adapters);
