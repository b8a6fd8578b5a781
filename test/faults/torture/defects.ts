/**
 * Defects of the scripts, put in on the way to the server. They show that the judges of histories find them: a judge that
 * has never seen a broken history proves nothing.
 */

import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { NAMES, type Place } from './places/place.js';
import type { ServerFault } from './server-faults.js';

/** A piece of a script, and what it becomes. */
interface Defect {
  readonly right: string;
  readonly wrong: string;
}

/** All defects by name. */
export const DEFECTS: Readonly<Record<string, Defect>> = {
  /** A late release frees the lock of the next owner. */
  'release-of-another': {
    right: '(value == token or value == token .. MARK) and redis',
    wrong: '(value) and redis',
  },
  /** The fence of a free lock is the last one again. */
  'fence-again': { right: 'fence = before + 1', wrong: 'fence = before' },
};

/** A server that gets the scripts with a defect. */
export async function defective(name: string): Promise<Place> {
  const { right, wrong } = DEFECTS[name] as Defect;
  const server = await RedisServer.start();
  const proxy = await FaultProxy.start(server.port);
  // Of the same length, so that the protocol around it stays right; Lua ignores the spaces.
  proxy.onRequest = (chunk) => overwrite(chunk, right, wrong.padEnd(right.length));
  // A piece that arrives in two chunks keeps its script right until the server forgets it.
  const flush: ServerFault = {
    kind: 'SCRIPT FLUSH',
    cause: async () => void (await server.admin.script('FLUSH')),
  };
  return {
    targets: [proxy.url],
    options: {},
    names: NAMES,
    quorum: false,
    faults: [flush],
    servers: async () => [server],
    async stop() {
      await Promise.all([proxy.stop(), server.stop()]);
    },
  };
}

function overwrite(chunk: Buffer, right: string, wrong: string): void {
  for (let at = chunk.indexOf(right); at >= 0; at = chunk.indexOf(right, at)) {
    chunk.write(wrong, at, 'latin1');
  }
}
