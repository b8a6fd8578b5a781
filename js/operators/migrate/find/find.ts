/** Finds and judges the locks of one file. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { findByHand } from './by-hand.js';
import { judge } from './judge/judge.js';
import type { Commands, HandLock } from './key-command.js';
import type { Fault } from './lock.js';
import { findPackages, judgePackages, type PackageUse } from './packages.js';
import { readCommands } from './read-commands.js';
import type { ReadScript } from './scripts.js';
import type { Source } from './source.js';

/** A file that has neither these nor what follows takes no lock, and is not parsed. */
const HINTS =
  /redlock|redis-?semaphore|redis-?lock|redis-exp-lock|redis-mutex|redis-leader|redfour|node-redisson|warlock|murlock|@upstash\/lock|@nestjs-redis|@redis-kit|redis-promise-lock|set_?n(?:x|ot_?exist)|set_?if_?(?:not|absent)|['"`]nx['"`]|\bnx\b['"]?\s*:|onlyIfDoesNotExist|redis\s*\.\s*p?call|\.lua\b/i;

/** Words of locks, commands that take them without a condition, and clients: of Redis, or of another file. */
const LOCKS = /lock|mutex|lease/i;
const WRITES = /\.(?:(?:p?set|incr|getset)\w*|eval|evalsha|defineCommand)\(/i;
const MAY_BE_CLIENT = /redis|valkey|(?:from|require\()\s*['"](?:\.|[@~]\/)/i;

/** Whether a text may hold a lock. */
export function mayLock(text: string): boolean {
  return HINTS.test(text) || (LOCKS.test(text) && WRITES.test(text) && MAY_BE_CLIENT.test(text));
}

/** All that a file does with locks. */
export interface FileLocks {
  readonly byHand: readonly { lock: HandLock; faults: readonly Fault[] }[];
  /** All that it does to keys. */
  readonly commands: Commands;
  readonly uses: readonly PackageUse[];
  readonly faults: readonly Fault[];
}

/** Tests play other owners; what they take guards nothing. */
const TEST = /\.(test|spec|e2e|e2e-spec)\.[cm]?[jt]sx?$|[\\/]__(tests|mocks)__[\\/]/;

/** Finds the locks of a file, and judges them. */
export function findLocks(source: Source): FileLocks {
  const commands = readCommands(source, scriptReader(source.path));
  const locks = TEST.test(source.path) ? [] : findByHand(source, commands);
  const byHand = locks.map((lock) => ({
    lock,
    faults: judge(source, lock, commands),
  }));
  const uses = findPackages(source);
  return { byHand, commands, uses, faults: judgePackages(source, uses) };
}

/** Reads scripts beside the file that names them, or in a folder of scripts beside it. */
function scriptReader(path: string): ReadScript {
  return (name) => {
    for (const folder of ['.', 'lua', 'scripts', '..', '../lua', '../scripts']) {
      const file = join(dirname(path), folder, name);
      if (existsSync(file)) return readFileSync(file, 'utf8');
    }
    return undefined;
  };
}
