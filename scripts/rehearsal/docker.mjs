// Stands in for docker where a rehearsal tries an image of Node, and where it takes the server out of an image. `docker run`
// runs the command in the file system of the image's platform, with its C library and processor; `HOLDFAST_PROCESSOR` is the
// processor of the runner, and npm installs from `HOLDFAST_REGISTRY`. `docker cp` takes the server from .ci/servers.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { copyServer, serverOf } from './servers.mjs';

const ROOT = join(import.meta.dirname, '..', '..');
const TESTS = join(ROOT, 'build', 'test');
const { fetched, nodeOf } = await import(join(TESTS, 'support', 'fetched.js'));
const { PLATFORMS, PlatformRoot } = await import(join(TESTS, 'platforms', 'roots.js'));

const [command, ...words] = process.argv.slice(2);
if (command === 'run') await run(words);
else if (command === 'create') console.log(serverOf(words[0]));
else if (command === 'cp') copyServer(words.at(-2).split(':')[0], words.at(-1));
else if (command !== 'rm') throw new Error(`no rehearsal of docker ${command}`);

async function run(given) {
  const { values, positionals } = parseArgs({
    args: given,
    allowPositionals: true,
    options: {
      rm: { type: 'boolean' },
      volume: { type: 'string', short: 'v' },
      workdir: { type: 'string', short: 'w' },
    },
  });
  const [image, program, ...args] = positionals;
  const [folder] = values.volume.split(':');
  const cpu = process.env.HOLDFAST_PROCESSOR;
  const libc = image.endsWith('-alpine') ? 'musl' : 'glibc';
  const platform = PLATFORMS.find((each) => each.cpu === cpu && each.libc === libc);

  if (platform === undefined) {
    // glibc on this processor is this machine itself.
    const node = await nodeOf(Number(/^node:(\d+)/.exec(image)[1]));
    const env = { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH}` };
    execFileSync(program, args, { cwd: folder, env, stdio: 'inherit' });
  } else {
    const root = await PlatformRoot.of(platform);
    const npm = await fetched('npm@11', 'bin/npm-cli.js');
    // The root has Node without npm.
    const bin = join(dirname(dirname(dirname(dirname(npm)))), 'holdfast-programs');
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'npm'), `#!/bin/sh\nexec node '${npm}' "$@"\n`);
    chmodSync(join(bin, 'npm'), 0o755);
    process.env.PATH = `${bin}${delimiter}${process.env.PATH}`;
    // The network of the root is this machine's, but not the names and settings of it.
    const env = { npm_config_registry: process.env.HOLDFAST_REGISTRY };
    process.stdout.write(await root.runs(program, args, folder, env));
  }
}
