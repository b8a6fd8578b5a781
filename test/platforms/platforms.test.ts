/**
 * The package on the platforms of which this machine runs programs: musl, arm64 by qemu, and Windows by Wine. Their
 * addons are those of `npm run build:portable`.
 */

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { EmbeddedHost } from '../behaviour/conformance/place.js';
import { Packed } from '../package/packed.js';
import { Authority } from '../support/certificates.js';
import { ROOT } from '../support/child.js';
import { fetched } from '../support/fetched.js';
import { RedisServer } from '../support/server.js';
import { PLATFORMS, PlatformRoot } from './roots.js';

const ADDONS = process.env['HOLDFAST_ADDONS'] ?? join(ROOT, 'target', 'portable', 'addons');
const SMOKE = join(ROOT, 'test', 'platforms', 'smoke.mjs');
const CONFORMANCE = join(ROOT, 'build', 'test', 'behaviour', 'conformance');
const EMBEDDED = new EmbeddedHost();
const HOW = 'build it (npm run build:portable -- --all)';

const authority = new Authority();
let server: RedisServer;
let secure: RedisServer;
let packed: Packed;

before(async () => {
  const tls = { server: authority.issue('DNS:localhost,IP:127.0.0.1'), ca: authority.ca };
  server = await RedisServer.start();
  secure = await RedisServer.start({ tls });
  packed = await Packed.start(ADDONS);
});

after(async () => {
  await Promise.all([server.stop(), secure.stop()]);
  await packed.stop();
  authority.remove();
});

for (const platform of PLATFORMS) {
  const { addon, cpu, os } = platform;
  const file = join(ADDONS, `holdfast.${addon}.node`);

  test(`${addon}: npm installs its addon, and everything works`, async () => {
    assert.ok(existsSync(file), `there is no ${file}: ${HOW}`);
    const root = await PlatformRoot.of(platform);
    const npm = await fetched('npm@11', 'bin/npm-cli.js');
    const folder = packed.project(addon);
    packed.registry.fetched.clear();
    const install = [npm, 'install', '--no-audit', '--no-fund', 'holdfast'];
    await root.runs('node', install, folder, packed.environment(folder));
    const taken = [...packed.registry.fetched].filter((name) => name.includes('/addon-'));
    assert.deepEqual(taken, [`@holdfast/addon-${addon}`]);
    writeFileSync(join(folder, 'ca.pem'), authority.ca.cert);
    for (const runtime of os === 'linux' ? ['node', 'bun'] : ['node']) {
      const said = await root.runs(runtime, [SMOKE, server.url, secure.url, 'ca.pem'], folder);
      assert.match(said, new RegExp(`^${os} ${cpu} closed$`, 'm'), runtime);
    }
  });

  test(`${addon}: it behaves as it does here`, async () => {
    assert.ok(existsSync(file), `there is no ${file}: ${HOW}`);
    const root = await PlatformRoot.of(platform);
    const env = { NAPI_RS_NATIVE_LIBRARY_PATH: file };
    const flags = ['--test', '--test-reporter=tap', '--expose-gc'];
    // The servers are programs of Linux, which Node for Windows cannot start.
    const lists = os === 'win32' ? ['embedded'] : ['embedded', 'conformance'];
    const files = lists.map((name) => join(CONFORMANCE, `${name}.test.js`));
    // Emulated, the Clusters and quorums take too long.
    if (cpu === 'arm64') flags.push(`--test-name-pattern=${EMBEDDED.name}|on Redis [0-9.]+( |$)`);
    const said = await root.runs('node', [...flags, ...files], ROOT, env);
    assert.match(said, /^# pass [1-9]\d+$/m);
    assert.match(said, /^# fail 0$/m);
  });
}
