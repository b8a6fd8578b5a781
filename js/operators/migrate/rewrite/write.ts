/** How new texts get into files: all of them, or none, and no file in halves. */

import { randomUUID } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';

/** A file, and its new text. */
export interface Change {
  readonly path: string;
  readonly text: string;
}

/** The outcome of changes. */
export interface Written {
  readonly changed: readonly string[];
  readonly unchanged: readonly { readonly path: string; readonly reason: string }[];
}

/** A new text beside the file that it replaces. */
interface Draft {
  readonly change: Change;
  readonly draft: string;
  readonly file: string;
}

/** Signals that people and systems end a command by. */
const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const;

const NONE = 'another file could not be changed';

/**
 * Writes all new texts beside their files, and then puts each in the place of its file in one step, with its rights. If one
 * cannot be written, or a signal arrives before the first is in its place, no file changes: the files of a package may
 * hand its objects to each other.
 */
export async function writeAll(changes: readonly Change[]): Promise<Written> {
  const stop = new AbortController();
  const onSignal = (signal: NodeJS.Signals) => stop.abort(new Error(`stopped by ${signal}`));
  for (const signal of SIGNALS) process.on(signal, onSignal);
  try {
    return await writeUnless(stop.signal, changes);
  } finally {
    for (const signal of SIGNALS) process.off(signal, onSignal);
  }
}

async function writeUnless(signal: AbortSignal, changes: readonly Change[]): Promise<Written> {
  const drafts: Draft[] = [];
  for (const change of changes) {
    try {
      drafts.push(draftOf(change));
      await turn();
      signal.throwIfAborted();
    } catch (error) {
      for (const { draft } of drafts) rmSync(draft, { force: true });
      return { changed: [], unchanged: changes.map((each) => told(each, change, error)) };
    }
  }
  return replaceAll(drafts);
}

function told(each: Change, failed: Change, error: unknown): Written['unchanged'][number] {
  return { path: each.path, reason: each === failed ? (error as Error).message : NONE };
}

function draftOf(change: Change): Draft {
  const file = realpathSync(change.path);
  const draft = join(dirname(file), `.${basename(file)}.${randomUUID()}.tmp`);
  try {
    writeFileSync(draft, change.text, { flag: 'wx', flush: true });
    keepRights(file, draft);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
  return { change, draft, file };
}

function keepRights(file: string, draft: string): void {
  const { mode, uid, gid } = statSync(file);
  attempt(() => chownSync(draft, uid, gid));
  // A change of the owner may take rights away.
  chmodSync(draft, mode);
}

/** Only the superuser may give a file to another owner. */
function attempt(chown: () => void): void {
  try {
    chown();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
  }
}

/** Only a system that fails between two renames changes some of the files. */
function replaceAll(drafts: readonly Draft[]): Written {
  const changed: string[] = [];
  const unchanged: Written['unchanged'][number][] = [];
  for (const { change, draft, file } of drafts) {
    try {
      renameSync(draft, file);
      changed.push(change.path);
    } catch (error) {
      rmSync(draft, { force: true });
      unchanged.push({ path: change.path, reason: (error as Error).message });
    }
  }
  return { changed, unchanged };
}
