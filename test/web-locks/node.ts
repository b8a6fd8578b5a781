/** A Node that has `navigator.locks`, whose behaviour is the yardstick. */

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../support/child.js';

/** The first that has them without a flag, in a release with long support. */
const MAJOR = 24;

const run = promisify(execFile);
const folder = join(ROOT, 'node_modules', '.cache', 'holdfast-node');

/**
 * The path of a Node with Web Locks: this one, the one that `HOLDFAST_NODE` names, or one that npm gets
 * once and keeps in `node_modules/.cache`.
 */
export async function nodeWithWebLocks(): Promise<string> {
  const { HOLDFAST_NODE } = process.env;
  if (HOLDFAST_NODE !== undefined) {
    if (await hasWebLocks(HOLDFAST_NODE)) return HOLDFAST_NODE;
    throw new Error(`HOLDFAST_NODE is ${HOLDFAST_NODE}, which is no Node ${MAJOR} or newer`);
  }
  if (await hasWebLocks(process.execPath)) return process.execPath;
  const fetched = join(folder, 'node_modules', 'node', 'bin', 'node');
  if (await hasWebLocks(fetched)) return fetched;
  const args = ['install', '--prefix', folder, '--no-audit', '--no-fund', `node@${MAJOR}`];
  try {
    await run('npm', args);
  } catch (error) {
    throw new Error(MISSING, { cause: error });
  }
  if (await hasWebLocks(fetched)) return fetched;
  throw new Error(MISSING);
}

const MISSING =
  `the tests of Web Locks need Node ${MAJOR} or newer, and npm could not get one: run them with it, or ` +
  'name one in HOLDFAST_NODE';

async function hasWebLocks(node: string): Promise<boolean> {
  return run(node, ['-e', 'navigator.locks.request']).then(
    () => true,
    () => false,
  );
}
