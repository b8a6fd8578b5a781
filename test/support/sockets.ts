/** Sockets of tests. */

import type { Socket } from 'node:net';

/**
 * Resets a connection, or closes it if it is shutting down already. Node 20 to 26 cannot reset it then, and counts it as
 * closed all the same: nothing closes it any more, and the process spins at its end, where Node waits for it.
 */
export function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
