/** What docs/servers.md shows. */

import { runPage } from './run-page.js';

runPage('docs/servers.md');
