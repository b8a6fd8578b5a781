/** A client of Prisma for the table of stocks, generated as a service would have it. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../support/child.js';
import { fetchedFolder } from '../support/fetched.js';
import { removeFolder } from '../support/folders.js';

const SCHEMA = join(ROOT, 'examples', 'prisma', 'schema.prisma');

/** The adapter of Prisma for each kind of database. */
const ADAPTERS = { postgresql: '@prisma/adapter-pg', sqlite: '@prisma/adapter-libsql' };

/** Calls `use` with a module that exports `PrismaClient` and what the adapter exports. */
export async function withPrisma(
  kind: keyof typeof ADAPTERS,
  use: (module: string) => Promise<void>,
): Promise<void> {
  const adapters = Object.values(ADAPTERS).map((adapter) => `${adapter}@7`);
  const folder = await fetchedFolder('prisma@7', '@prisma/client@7', ...adapters);
  const made = mkdtempSync(join(folder, 'generated-'));
  try {
    const schema = readFileSync(SCHEMA, 'utf8').replace('"postgresql"', `"${kind}"`);
    writeFileSync(join(made, 'schema.prisma'), schema);
    const module = join(made, 'index.cjs');
    writeFileSync(
      module,
      `module.exports = { ...require('./client'), ...require('${ADAPTERS[kind]}') };`,
    );
    const prisma = join(folder, 'node_modules', 'prisma', 'build', 'index.js');
    const words = [prisma, 'generate', '--schema', join(made, 'schema.prisma')];
    // Only migrations need this program, which Prisma would fetch from a server of its own.
    const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
    execFileSync(process.execPath, words, { cwd: folder, env, stdio: 'pipe' });
    await use(module);
  } finally {
    removeFolder(made);
  }
}
