// What a runner of GitHub has that this machine does not: actions, Docker, sudo. Artifacts are folders here.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, delimiter, dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');
const SUPPORT = join(ROOT, 'build', 'test', 'support', 'fetched.js');

export class Machine {
  #artifacts;
  #programs;

  /** `folder` keeps the checkouts, and what was fetched and compiled in them. */
  constructor(folder, registry) {
    this.folder = folder;
    this.registry = registry;
    this.#artifacts = join(folder, 'artifacts');
    this.#programs = join(folder, 'bin');
    rmSync(this.#artifacts, { recursive: true, force: true });
    for (const each of [this.#artifacts, this.#programs]) mkdirSync(each, { recursive: true });
    this.#program('sudo', '[ "$1" != -E ] || shift; exec "$@"');
    // Programs of this machine that others use meanwhile stay as they are.
    this.#program('apt-get', 'exec /usr/bin/apt-get -o APT::Get::Upgrade=false "$@"');
    const docker = join(import.meta.dirname, 'docker.mjs');
    this.#program('docker', `exec '${process.execPath}' '${docker}' "$@"`);
  }

  /** Where the programs of this machine's own are, to put before PATH. */
  get path() {
    return this.#programs;
  }

  /** The folder in which a job runs. */
  workspace(job) {
    const workspace = join(this.folder, job);
    if (!existsSync(join(workspace, '.git'))) rmSync(workspace, { recursive: true, force: true });
    mkdirSync(workspace, { recursive: true });
    return workspace;
  }

  /** The folder of an artifact. */
  artifact(name) {
    return join(this.#artifacts, name);
  }

  /** Does what an action does; `inputs` are its `with`, filled. Answers what it adds to the environment. */
  async act(action, inputs, workspace) {
    const name = action.split('@', 1)[0];
    if (name === 'actions/checkout') return this.#checkout(join(workspace, inputs.path ?? ''));
    if (name === 'actions/setup-node') return this.#node(inputs, workspace);
    if (name === 'actions/upload-artifact') return this.#upload(inputs, workspace);
    if (name === 'actions/download-artifact') return this.#download(inputs, workspace);
    throw new Error(`no rehearsal of ${name}`);
  }

  /** An artifact that is there before the first job. */
  provide(name, files) {
    mkdirSync(this.artifact(name), { recursive: true });
    for (const file of files) cpSync(file, join(this.artifact(name), basename(file)));
  }

  /** The last commit, without what the job before has made, but for what it has fetched and compiled. */
  #checkout(to) {
    const git = (...args) => execFileSync('git', args, { cwd: to, stdio: ['ignore', 2, 2] });
    if (!existsSync(join(to, '.git'))) {
      mkdirSync(to, { recursive: true });
      git('init', '--quiet');
    }
    git('fetch', '--quiet', '--depth=1', `file://${ROOT}`, 'HEAD');
    git('checkout', '--quiet', '--force', '--detach', 'FETCH_HEAD');
    git('clean', '-ffdxq', '--exclude=node_modules', '--exclude=target');
    rmSync(join(to, 'target', 'portable', 'addons'), { recursive: true, force: true });
    return {};
  }

  async #node({ 'node-version': version, 'registry-url': registry }, workspace) {
    const { nodeOf } = await import(SUPPORT);
    const node = await nodeOf(Number(version));
    const env = { PATH: [this.#programs, dirname(node), process.env.PATH].join(delimiter) };
    if (registry === undefined) return env;
    // Where the action names npm's registry and a token.
    const url = this.registry.url;
    const file = join(workspace, '.npmrc');
    writeFileSync(file, `registry=${url}\n${url.replace(/^http:/, '')}:_authToken=none\n`);
    return { ...env, npm_config_userconfig: file, npm_config_registry: url };
  }

  #upload({ name, path }, workspace) {
    const folder = join(workspace, dirname(path));
    const ends = basename(path).replace('*', '');
    const files = readdirSync(folder).filter((file) => file.endsWith(ends));
    if (files.length === 0) throw new Error(`no files at ${path}`);
    this.provide(
      name,
      files.map((file) => join(folder, file)),
    );
    return {};
  }

  #download({ name, pattern = name, path }, workspace) {
    const starts = pattern.replace(/\*$/, '');
    const found = readdirSync(this.#artifacts).filter((each) => each.startsWith(starts));
    if (found.length === 0) throw new Error(`no artifact ${pattern}`);
    for (const each of found) {
      cpSync(this.artifact(each), join(workspace, path), { recursive: true });
    }
    return {};
  }

  #program(name, script) {
    const file = join(this.#programs, name);
    writeFileSync(file, `#!/bin/sh\n${script}\n`);
    chmodSync(file, 0o755);
  }
}
