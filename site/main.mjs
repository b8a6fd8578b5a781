// Builds the site into target/site/html: the API from the docstrings, the pages from the Markdown, and a check
// of every link. HOLDFAST_SITE_BASE says where it will stand on its server: / by default.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { deadLinks } from './links.mjs';
import { writePages } from './pages.mjs';
import { HTML, ROOT } from './paths.mjs';

const SITE = import.meta.dirname;

install();
run('typedoc', ROOT, 'npx', 'typedoc', '--logLevel', 'Warn');
writePages();
run('vitepress', SITE, 'npm', 'run', '--silent', 'build', '--', '--logLevel', 'warn');
const dead = deadLinks(HTML, process.env.HOLDFAST_SITE_BASE || '/');
if (dead.length > 0) fail(`These links lead nowhere:\n${dead.join('\n')}`);
console.log(`✓ ${HTML}`);

/** The site's own packages: whoever does not build it needs none of them. */
function install() {
  const wanted = readFileSync(join(SITE, 'package-lock.json'), 'utf8');
  const installed = join(SITE, 'node_modules', '.package-lock.json');
  const version = /"node_modules\/vitepress": \{\s*"version": "([^"]+)"/;
  if (
    existsSync(installed) &&
    version.exec(readFileSync(installed, 'utf8'))?.[1] === version.exec(wanted)?.[1]
  )
    return;
  run('npm', SITE, 'npm', 'ci', '--no-audit', '--no-fund');
}

function run(what, cwd, program, ...args) {
  const shell = process.platform === 'win32';
  const { status } = spawnSync(program, args, { cwd, stdio: 'inherit', shell });
  if (status !== 0) fail(`${what} failed`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
