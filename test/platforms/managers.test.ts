/** Which addon each package manager installs on other platforms, and what is said where the addon is missing. */

import assert from 'node:assert/strict';
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { bun, MANAGERS, type Manager, npm, prepare, SAYS } from '../package/managers.js';
import { Packed } from '../package/packed.js';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { PLATFORMS, type Platform, PlatformRoot } from './roots.js';

const ADDONS = process.env['HOLDFAST_ADDONS'] ?? join(ROOT, 'target', 'portable', 'addons');
const LOAD = "try { require('holdfast') } catch (error) { console.log(error.name, error.message) }";

let packed: Packed;

before(async () => {
  packed = await Packed.start(ADDONS);
});

after(() => packed.stop());

/**
 * Those of Linux whose addon has been built; that of musl on this processor must have been. Package managers for Windows
 * fail on Wine's file system, with or without holdfast.
 */
const built = PLATFORMS.filter(
  ({ os, addon }) =>
    os === 'linux' &&
    (addon === 'linux-x64-musl' || existsSync(join(ADDONS, `holdfast.${addon}.node`))),
);

/** The platform's programs, and a new folder in which they work. */
class Project {
  private constructor(
    readonly root: PlatformRoot,
    readonly folder: string,
  ) {}

  static async of(platform: Platform, manager: Manager, name: string): Promise<Project> {
    const folder = packed.project(`${platform.addon}-${name}`.replaceAll(/\W+/g, '-'));
    prepare(manager, folder, packed.registry.url);
    return new Project(await PlatformRoot.of(platform), folder);
  }

  async manages(manager: Manager, words: readonly string[]): Promise<void> {
    const [program = '', ...args] = [...(await manager.command()), ...words];
    await this.root.runs(program, args, this.folder, packed.environment(this.folder));
  }

  runs(...args: string[]): Promise<string> {
    return this.root.runs('node', args, this.folder);
  }
}

const managers = [...MANAGERS, bun];

for (const platform of built) {
  const { addon } = platform;
  const needed = `@holdfast/addon-${addon}`;

  for (const manager of managers) {
    test(`${addon}: ${manager.name} installs its addon`, async () => {
      const project = await Project.of(platform, manager, manager.name);
      packed.registry.fetched.clear();
      await project.manages(manager, manager.add);
      assert.equal(await project.runs(...(manager.flags ?? []), 'a.cjs'), SAYS);
      const taken = [...packed.registry.fetched].filter((name) => name.includes('/addon-'));
      if (!manager.fetchesAll) assert.deepEqual(taken, [needed]);
    });
  }

  for (const manager of managers.filter(({ addWithoutOptional }) => addWithoutOptional)) {
    test(`${addon}: ${manager.name} without optional packages: the error names the one that is needed`, async () => {
      const project = await Project.of(platform, manager, `no-optional-${manager.name}`);
      await project.manages(manager, manager.addWithoutOptional ?? []);
      const said = await project.runs('-e', LOAD);
      assert.match(said, /^LockLoadError .*optional dependencies were left out/);
      assert.ok(said.includes(`This platform needs ${needed}, which is missing: `), said);
    });
  }

  test(`${addon}: a lock file that lacks its addon: npm ci refuses it, and names the addon`, async () => {
    const project = await Project.of(platform, npm, 'foreign-lock');
    await project.manages(npm, npm.add);
    // As npm wrote lock files that were made beside an installed folder of another platform.
    const file = join(project.folder, 'package-lock.json');
    const lock = JSON.parse(readFileSync(file, 'utf8'));
    delete lock.packages[`node_modules/${needed}`];
    writeFileSync(file, JSON.stringify(lock));
    removeFolder(join(project.folder, 'node_modules'));
    const ci = project.manages(npm, ['ci', '--no-audit', '--no-fund']);
    await assert.rejects(ci, ({ message }: Error) => message.includes(`Missing: ${needed}@`));
    await project.manages(npm, ['install', '--no-audit', '--no-fund']);
    assert.equal(await project.runs('a.cjs'), SAYS);
  });

  test(`${addon}: a node_modules of another platform: the error names both`, async () => {
    const project = await Project.of(platform, npm, 'copied');
    const here = await packed.installed(`copied-to-${addon}`);
    for (const name of ['package.json', 'node_modules']) {
      cpSync(join(here, name), join(project.folder, name), { recursive: true });
    }
    const said = await project.runs('-e', LOAD);
    const has = `this node_modules has ${packed.addonName}, and was installed on that platform`;
    assert.ok(said.includes(`needs ${needed}, which is missing: ${has}`), said);
    // The second of the commands that it names.
    const [, words = ''] = /lacks it: npm (install --save-optional \S+)\. /.exec(said) ?? [];
    await project.manages(npm, [...words.split(' '), '--no-audit', '--no-fund']);
    assert.equal(await project.runs('a.cjs'), SAYS);
  });
}
