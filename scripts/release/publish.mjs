// Publishes the tarballs of a release, if they are those that its statement names.
//
//   node scripts/release/publish.mjs packages
//
// The platforms first: whoever installs the main package meanwhile must find them. What is published already is passed
// over, so that a job that broke off can be run again. A version with a hyphen, such as 1.2.3-rc.1, is for those who
// ask for it: without a tag it would be the latest.

import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { assertSame } from './statement.mjs';
import { STATEMENT, tarballsIn } from './tarballs.mjs';

const [folder = 'packages'] = process.argv.slice(2);
/** npm signs only where a workflow of GitHub can prove who it is. */
const provenance = process.env.GITHUB_ACTIONS === 'true' ? ['--provenance'] : [];

const tarballs = tarballsIn(folder);
assertSame(tarballs, JSON.parse(readFileSync(join(folder, STATEMENT), 'utf8')));
for (const { path, manifest } of tarballs) {
  const { name, version } = manifest;
  if (isPublished(`${name}@${version}`)) {
    console.log(`${name}@${version} is published already`);
    continue;
  }
  const tag = version.includes('-') ? 'next' : 'latest';
  const args = ['publish', resolve(path), '--access', 'public', '--tag', tag, ...provenance];
  execFileSync('npm', args, { stdio: 'inherit' });
}

function isPublished(spec) {
  const { status, stdout } = spawnSync('npm', ['view', spec, 'version'], { encoding: 'utf8' });
  return status === 0 && stdout.trim() !== '';
}
