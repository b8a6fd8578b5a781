// Stands in for `docker run` where a rehearsal tries an image of Node: runs the command in the file system of the
// image's platform, with its C library and processor. `HOLDFAST_PROCESSOR` is the processor of the runner.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';

const ROOT = join(import.meta.dirname, '..', '..');
const TESTS = join(ROOT, 'build', 'test');
const { fetched, nodeOf } = await import(join(TESTS, 'support', 'fetched.js'));
const { PLATFORMS, PlatformRoot } = await import(join(TESTS, 'platforms', 'roots.js'));

const { values, positionals } = parseArgs({
  args: process.argv.slice(3),
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
  process.stdout.write(await root.runs(program, args, folder));
}
