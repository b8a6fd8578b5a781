// A network between client and server: forwards what it gets after a delay, in a process of its own.
//
//   node proxy.mjs <port of the server> <delay in ms, each way>
//
// Prints its port. Ends when standard input closes, which happens however the parent ends.

import { connect, createServer } from 'node:net';

const [port, delayMs] = process.argv.slice(2).map(Number);

/** The chunks on their way, in the order in which they were sent and arrive. */
const flying = [];
let spinning = false;

/** Timers have a resolution of a millisecond, so while a chunk is on its way this reads the clock in every turn. */
function spin() {
  const now = performance.now();
  while (flying.length > 0 && flying[0].due <= now) {
    const { to, chunk } = flying.shift();
    if (chunk === undefined) to.destroy();
    else to.write(chunk);
  }
  spinning = flying.length > 0;
  if (spinning) setImmediate(spin);
}

function forward(from, to) {
  const send = (chunk) => {
    flying.push({ due: performance.now() + delayMs, to, chunk });
    if (!spinning) {
      spinning = true;
      setImmediate(spin);
    }
  };
  from.on('data', send);
  from.on('close', () => send(undefined));
  from.on('error', () => {});
}

const server = createServer((client) => {
  const upstream = connect(port, '127.0.0.1').setNoDelay();
  forward(client.setNoDelay(), upstream);
  forward(upstream, client);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
