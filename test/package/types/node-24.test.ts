/** The types of every entry point, beside @types/node 24. */

import { checkTypes } from './program.js';

checkTypes(24);
