/** The types of every entry point, beside @types/node 20. */

import { checkTypes } from './program.js';

checkTypes(20);
