/** Code bases in folders of their own, and `holdfast migrate` on them. */

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { pathToFileURL } from 'node:url';
import { type Ended, ended, ROOT, run } from '../../support/child.js';
import { removeFolder } from '../../support/folders.js';
import { RedisServer } from '../../support/server.js';
import { environment, MAIN } from '../cli/support.js';

/** A block of a page of code: a file, and what the page says of it. */
export interface Block {
  readonly name: string;
  readonly notes: readonly string[];
  readonly text: string;
}

/** Reads the blocks of a page beside this file. */
export function blocksOf(page: string): Block[] {
  const text = readFileSync(join(ROOT, 'test', 'operators', 'migrate', page), 'utf8');
  return [...text.matchAll(/^```\w+ (\S+) ?(.*)\n([\s\S]*?)^```$/gm)].map(
    ([, name = '', notes = '', text = '']) => ({
      name,
      notes: notes.split(' ').filter(Boolean),
      text,
    }),
  );
}

const folders: string[] = [];
after(() => folders.forEach(removeFolder));

/** Makes a folder with files, which is removed after the tests of the file. */
export function folderOf(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-migrate-'));
  folders.push(folder);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

/** A lock in the report. */
export interface Lock {
  readonly by: string;
  readonly key: string | null;
  readonly line: number;
  readonly column: number;
  readonly findings: readonly {
    readonly rule: string;
    readonly line: number;
    readonly column: number;
  }[];
  readonly advice: string;
  readonly code?: string;
  readonly rewritten: boolean;
}

/** The report as JSON. */
export interface Report {
  readonly files: number;
  readonly unread: readonly { readonly path: string; readonly reason: string }[];
  readonly found: readonly { readonly path: string; readonly locks: readonly Lock[] }[];
  readonly changes: readonly string[];
  readonly changed: readonly string[];
  readonly unchanged: readonly { readonly path: string; readonly reason: string }[];
}

/** Runs the command in a folder. */
export function migrates(folder: string, ...args: readonly string[]): Promise<Ended> {
  return migratesAs(folder, args, {});
}

/** Runs the command in a folder, as a user. */
export function migratesAs(
  folder: string,
  args: readonly string[],
  user: { readonly uid?: number },
): Promise<Ended> {
  return ended(
    spawn(process.execPath, [MAIN, 'migrate', ...args], {
      ...user,
      cwd: folder,
      env: environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  );
}

/** Its report, as JSON. */
export async function reportOf(folder: string, ...args: readonly string[]): Promise<Report> {
  const { stdout, stderr } = await migrates(folder, '--json', ...args);
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout) as Report;
}

export function read(folder: string, name: string): string {
  return readFileSync(join(folder, name), 'utf8');
}

/**
 * Runs a program in which `old` is a module, and `now` the same module as `--write` leaves it, on a server of their own. They
 * are below the project's folder, where they find holdfast.
 */
export async function runBeside(
  module: string,
  program: string,
): Promise<{ written: string; stdout: string; stderr: string }> {
  const folder = mkdtempSync(join(ROOT, 'build', 'migrate-'));
  folders.push(folder);
  for (const name of ['old.mjs', 'new.mjs']) writeFileSync(join(folder, name), module);
  const imported = (name: string) =>
    `await import(${JSON.stringify(pathToFileURL(join(folder, name)).href)})`;
  const server = await RedisServer.start();
  try {
    await migrates(folder, 'new.mjs', '--write');
    const head = `
      process.env.REDIS_URL = ${JSON.stringify(server.url)};
      const old = ${imported('old.mjs')};
      const now = ${imported('new.mjs')};`;
    const { stdout, stderr } = await run(`${head}${program}`);
    return { written: read(folder, 'new.mjs'), stdout, stderr };
  } finally {
    await server.stop();
  }
}
