/** The package managers that people use, and how each installs from the registry of the tests. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fetched } from '../support/fetched.js';

export interface Manager {
  readonly name: string;
  /** Its program, with `node` before it where it is a script. */
  command(): Promise<readonly string[]>;
  /** The words that install holdfast. */
  readonly add: readonly string[];
  /** The words that install it without optional dependencies; none where it has no such thing. */
  readonly addWithoutOptional?: readonly string[];
  /** Its settings, as files of the project. */
  files?(registry: string): Readonly<Record<string, string>>;
  /** What Node needs to find what it has installed. */
  readonly flags?: readonly string[];
  /** Whether it fetches the addons of all platforms, and installs those of this system and processor. */
  readonly fetchesAll?: boolean;
}

const script = async (spec: string, program: string) => ['node', await fetched(spec, program)];

export const npm: Manager = {
  name: 'npm 11',
  command: () => script('npm@11', 'bin/npm-cli.js'),
  add: ['install', '--no-audit', '--no-fund', 'holdfast'],
  addWithoutOptional: ['install', '--no-audit', '--no-fund', '--omit=optional', 'holdfast'],
};

const berry = (nodeLinker: string) => ({
  command: () => script('@yarnpkg/cli-dist@4', 'bin/yarn.js'),
  add: ['add', 'holdfast'],
  files: (registry: string) => ({
    // An empty lock file makes the folder a project of its own.
    'yarn.lock': '',
    '.yarnrc.yml': [
      `nodeLinker: ${nodeLinker}`,
      `npmRegistryServer: ${registry}`,
      'unsafeHttpWhitelist: ["127.0.0.1"]',
      'enableGlobalCache: false',
      'enableImmutableInstalls: false',
      'enableTelemetry: false',
      // Plug'n'Play resolves imports by a loader.
      'pnpEnableEsmLoader: true',
      '',
    ].join('\n'),
  }),
});

export const MANAGERS: readonly Manager[] = [
  npm,
  { ...npm, name: 'npm 12', command: () => script('npm@12', 'bin/npm-cli.js') },
  {
    name: 'pnpm',
    command: () => script('pnpm@11', 'pnpm.mjs'),
    add: ['add', 'holdfast'],
    addWithoutOptional: ['add', '--no-optional', 'holdfast'],
  },
  {
    name: 'yarn 1',
    command: () => script('yarn@1.22', 'bin/yarn.js'),
    add: ['add', '--non-interactive', 'holdfast'],
    addWithoutOptional: ['add', '--non-interactive', '--ignore-optional', 'holdfast'],
    fetchesAll: true,
  },
  { name: 'yarn 4, node_modules', ...berry('node-modules') },
  { name: 'yarn 4, PnP', ...berry('pnp'), flags: ['--require', './.pnp.cjs'] },
];

/** It takes the addon of its own platform, so another Bun installs on each. */
export const bun: Manager = {
  name: 'bun',
  command: async () => ['bun'],
  add: ['add', 'holdfast'],
  addWithoutOptional: ['add', '--omit', 'optional', 'holdfast'],
};

const PROGRAM = `const { connect } = require('holdfast');
connect('memory:').then(async (locks) => {
  const lock = await locks.acquire('item:42');
  console.log(lock.held, await lock.release());
  await locks.close();
});
`;

/** What the program says where everything is installed. */
export const SAYS = 'true true\n';

/** Writes what a project of that manager has before it installs: its settings, and the program `a.cjs`. */
export function prepare(manager: Manager, folder: string, registry: string): void {
  const files = { 'a.cjs': PROGRAM, ...manager.files?.(registry) };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
}
