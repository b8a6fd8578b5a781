/** Loads the parser, which is an optional peer: services that take locks install nothing of it. */

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

type Oxc = typeof import('oxc-parser', { with: { 'resolution-mode': 'import' }});

/** The packages that the command needs beside holdfast. */
export const PEERS = ['oxc-parser', 'ignore'] as const;

/** An optional peer of the command is not installed. */
export class PeerMissingError extends Error {
  constructor(name: string, options: ErrorOptions) {
    super(
      `${name} is missing, which this command reads code by: npm install --save-dev ${PEERS.join(' ')}`,
      options,
    );
  }
}

/** What parses files of JavaScript and TypeScript. */
export type Parser = Pick<Oxc, 'parseSync' | 'visitorKeys'>;

/** Loads a peer from beside holdfast, or from the folder that the command runs in. */
export async function loadPeer<T>(name: (typeof PEERS)[number]): Promise<T> {
  let cause: unknown;
  for (const from of [__filename, join(process.cwd(), 'package.json')]) {
    try {
      const path = createRequire(from).resolve(name);
      return (await import(pathToFileURL(path).href)) as T;
    } catch (error) {
      cause = error;
    }
  }
  throw new PeerMissingError(name, { cause });
}

/** Loads the parser. Throws `PeerMissingError` if it is not installed. */
export function loadParser(): Promise<Parser> {
  return loadPeer<Parser>('oxc-parser');
}
