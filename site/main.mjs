// Builds the site into target/site: the API from the docstrings, the pages from the Markdown, and a check of
// every link. HOLDFAST_SITE_BASE says where it will stand on its server, such as /holdfast/; / by default.

import { spawnSync } from 'node:child_process';
import { deadLinks } from './links.mjs';
import { writePages } from './pages.mjs';
import { BASE, HTML, ROOT } from './paths.mjs';

// The addon need not be built: `npm run build:js` checks the types.
run(ROOT, 'npx', 'typedoc', '--logLevel', 'Warn', '--skipErrorChecking');
writePages();
run(import.meta.dirname, 'npm', 'run', '--silent', 'build', '--', '--logLevel', 'warn');

const dead = deadLinks(HTML, BASE);
if (dead.length > 0) {
  console.error(`These links of the site lead nowhere:\n${dead.join('\n')}`);
  process.exit(1);
}
console.log(`✓ ${HTML}`);

/** Runs a program, which tells of its failure itself. */
function run(cwd, program, ...args) {
  const shell = process.platform === 'win32';
  const { status } = spawnSync(program, args, { cwd, stdio: 'inherit', shell });
  if (status !== 0) process.exit(status ?? 1);
}
