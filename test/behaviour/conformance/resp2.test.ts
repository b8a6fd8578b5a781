/** The promises of holdfast on a server without HELLO, which speaks RESP2. */

import { serverBinary } from '../../support/server.js';
import { ServerHost } from './servers.js';
import { tryAllOn } from './suite.js';

tryAllOn(new ServerHost(serverBinary(), undefined, ['--rename-command', 'HELLO', '']));
