/** The promises of holdfast on the store inside the process. */

import { EmbeddedHost } from './place.js';
import { tryAllOn } from './suite.js';

tryAllOn(new EmbeddedHost());
