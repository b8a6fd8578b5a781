/** A Node that has `navigator.locks`, whose behaviour is the yardstick. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { nodeOf } from '../../support/fetched.js';

/** The first that has them without a flag, in a release with long support. */
const MAJOR = 24;

/** The path of a Node with Web Locks: the one that `HOLDFAST_NODE` names, this one, or one that npm gets. */
export async function nodeWithWebLocks(): Promise<string> {
  const { HOLDFAST_NODE } = process.env;
  if (HOLDFAST_NODE !== undefined) {
    if (await hasWebLocks(HOLDFAST_NODE)) return HOLDFAST_NODE;
    throw new Error(`HOLDFAST_NODE is ${HOLDFAST_NODE}, which is no Node ${MAJOR} or newer`);
  }
  if (await hasWebLocks(process.execPath)) return process.execPath;
  return nodeOf(MAJOR);
}

async function hasWebLocks(node: string): Promise<boolean> {
  return promisify(execFile)(node, ['-e', 'navigator.locks.request']).then(
    () => true,
    () => false,
  );
}
