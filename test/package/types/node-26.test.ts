/** The types of every entry point, beside @types/node 26. */

import { checkTypes } from './program.js';

checkTypes(26);
