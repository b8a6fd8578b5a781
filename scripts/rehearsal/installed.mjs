// Installs what has been published, on this machine and on every platform whose programs run here, and does there what
// every platform must do.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');
const TESTS = join(ROOT, 'build', 'test');
const SMOKE = join(ROOT, 'test', 'platforms', 'smoke.mjs');
const from = (path) => import(join(TESTS, path));

/** `published` are the names of the packages in the registry. Prints what each platform says. */
export async function installEverywhere(registry, published, folder) {
  const { Authority } = await from('support/certificates.js');
  const { RedisServer } = await from('support/server.js');
  const authority = new Authority();
  const tls = { server: authority.issue('DNS:localhost,IP:127.0.0.1'), ca: authority.ca };
  const [server, secure] = await Promise.all([RedisServer.start(), RedisServer.start({ tls })]);
  try {
    for (const [name, runs] of await places(published)) {
      const project = emptyProject(join(folder, name), registry, authority.ca.cert);
      registry.fetched.clear();
      const { fetched } = await from('support/fetched.js');
      const npm = await fetched('npm@11', 'bin/npm-cli.js');
      await runs([npm, 'install', '--no-audit', '--no-fund', 'holdfast'], project);
      const taken = [...registry.fetched].filter((each) => each.includes('/addon-'));
      if (taken.join() !== `@holdfast/addon-${name}`) throw new Error(`${name} took ${taken}`);
      await runs([SMOKE, server.url, secure.url, 'ca.pem'], project);
      console.log(`${name}: npm installed ${taken}, and everything works`);
    }
  } finally {
    await Promise.all([server.stop(), secure.stop()]);
    authority.remove();
  }
}

/** The platforms whose addon is published and that run here, each with what runs its Node in a folder. */
async function places(published) {
  const { succeeds } = await from('package/packed.js');
  const { PLATFORMS, PlatformRoot } = await from('platforms/roots.js');
  const env = (folder) => ({ npm_config_cache: join(folder, '.npm') });
  const here = `linux-${process.arch}-gnu`;
  const found = [[here, (args, cwd) => succeeds(process.execPath, args, cwd, env(cwd))]];
  for (const platform of PLATFORMS) {
    if (!published.includes(`@holdfast/addon-${platform.addon}`)) continue;
    const root = await PlatformRoot.of(platform);
    found.push([platform.addon, (args, cwd) => root.runs('node', args, cwd, env(cwd))]);
  }
  return found;
}

function emptyProject(folder, registry, ca) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"private":true}');
  writeFileSync(join(folder, '.npmrc'), `registry=${registry.url}\n`);
  writeFileSync(join(folder, 'ca.pem'), ca);
  return folder;
}
