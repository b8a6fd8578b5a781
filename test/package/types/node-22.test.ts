/** The types of every entry point, beside @types/node 22. */

import { checkTypes } from './program.js';

checkTypes(22);
