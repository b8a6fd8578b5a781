// A bare connection that tracks a key and asks about it when it is told: what server, network and event loop cost without a lock.

import { once } from 'node:events';
import { createConnection } from 'node:net';

const TOLD = '>2\r\n$10\r\ninvalidate';

/** The ms from the DEL of a tracked key until a bare connection has the answer that the key is gone, so many times. */
export async function plainLosses(url, redis, count, key) {
  const { hostname, port } = new URL(url);
  const socket = createConnection({ host: hostname, port, noDelay: true }).setEncoding('utf8');
  await once(socket, 'connect');
  const waits = [];
  try {
    await ask(socket, 'HELLO 3', 'modules');
    await ask(socket, 'CLIENT TRACKING on OPTIN', '+OK');
    while (waits.length < count) {
      await redis.set(key, 'held');
      await ask(socket, `CLIENT CACHING yes\r\nGET ${key}`, 'held');
      const told = answer(socket, TOLD);
      const began = performance.now();
      await Promise.all([redis.del(key), told.then(() => ask(socket, `GET ${key}`, '_'))]);
      waits.push(performance.now() - began);
    }
  } finally {
    socket.destroy();
  }
  return waits;
}

function ask(socket, command, end) {
  socket.write(`${command}\r\n`);
  return answer(socket, end);
}

/** Resolves when an answer has come that has a part. */
function answer(socket, part) {
  return new Promise((resolve) => {
    let text = '';
    const read = (data) => {
      text += data;
      if (!text.includes(part)) return;
      socket.off('data', read);
      resolve();
    };
    socket.on('data', read);
  });
}
