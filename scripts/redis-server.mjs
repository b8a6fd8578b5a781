// Helpers with which the demo and the benchmark start a server of their own.

import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';

/**
 * The program that `HOLDFAST_REDIS_SERVER` names, or that is in the folder which it names; else a Redis or Valkey on PATH;
 * `undefined` if there is none.
 */
export function findServerBinary(env) {
  const named = env.HOLDFAST_REDIS_SERVER;
  if (!named) return serverIn((env.PATH ?? '').split(delimiter));
  const found = isFile(named) ? named : serverIn([named]);
  if (found === undefined) throw new Error(`HOLDFAST_REDIS_SERVER names no server: ${named}`);
  return found;
}

function serverIn(folders) {
  return ['redis-server', 'valkey-server']
    .flatMap((name) => folders.filter(Boolean).map((folder) => join(folder, name)))
    .find(isFile);
}

function isFile(path) {
  // Below a program stands nothing, of which `statSync` also makes an error.
  return existsSync(path) && statSync(path).isFile();
}

/** A port of the loopback interface without a listener. */
export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
