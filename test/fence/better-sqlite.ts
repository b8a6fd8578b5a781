/** better-sqlite3, which is compiled where it is installed, and Drizzle for it. */

import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { fetchedFolder } from '../support/fetched.js';
import { needs } from '../support/tools.js';

// For node-gyp.
needs('compiler');
needs('python');

const execute = promisify(execFile);

/** The path of a module that exports `Database` and `drizzle`. */
export async function betterSqliteModule(): Promise<string> {
  const folder = await fetchedFolder('better-sqlite3@12', 'drizzle-orm@0.45');
  // One for each version of Node: an addon of V8 fits one alone.
  const module = join(folder, `node-${process.versions.modules}.cjs`);
  if (existsSync(module)) return module;
  // It takes a ready addon from its own releases, or compiles one, without optimisation to be quick: with the headers of
  // this Node if they are installed, since they cannot be downloaded everywhere.
  const prefix = dirname(dirname(process.execPath));
  const headers = existsSync(join(prefix, 'include', 'node', 'node.h'));
  const quick = { CFLAGS: '-O0', CXXFLAGS: '-O0' };
  const env = { ...process.env, ...quick, ...(headers ? { npm_config_nodedir: prefix } : {}) };
  await execute('npm', ['rebuild', 'better-sqlite3'], { cwd: folder, env, timeout: 200_000 });
  writeFileSync(
    module,
    `module.exports = { Database: require('better-sqlite3'), ...require('drizzle-orm/better-sqlite3') };`,
  );
  return module;
}
