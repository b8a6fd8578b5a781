/** A client of Prisma for the table of stocks, generated as a service would have it. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../support/child.js';
import { fetchedFolder } from '../../support/fetched.js';

const SCHEMA = join(ROOT, 'examples', 'prisma', 'schema.prisma');

/** Calls `use` with a module that exports `PrismaClient` and `PrismaPg`. */
export async function withPrisma(use: (module: string) => Promise<void>): Promise<void> {
  const folder = await fetchedFolder('prisma@7', '@prisma/client@7', '@prisma/adapter-pg@7');
  const made = mkdtempSync(join(folder, 'generated-'));
  try {
    copyFileSync(SCHEMA, join(made, 'schema.prisma'));
    const module = join(made, 'index.cjs');
    writeFileSync(
      module,
      `module.exports = { ...require('./client'), ...require('@prisma/adapter-pg') };`,
    );
    const prisma = join(folder, 'node_modules', 'prisma', 'build', 'index.js');
    const words = [prisma, 'generate', '--schema', join(made, 'schema.prisma')];
    // Only migrations need this program, which Prisma would fetch from a server of its own.
    const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
    execFileSync(process.execPath, words, { cwd: folder, env, stdio: 'pipe' });
    await use(module);
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}
