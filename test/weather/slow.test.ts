/** The weathers that take seconds, for all adapters. */

import { surviveSlowly } from './survives.js';
import { TABLE } from './table.js';

surviveSlowly(TABLE);
