// Makes the pictures of the page for operators in docs/images, by the test that looks at the page.

import { spawnSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
/** The pictures of docs/ui.md, and those of the test from which they are. */
const PICTURES = {
  'ui.png': 'list-1440-light.png',
  'ui-lock.png': 'lock-820-light.png',
  'ui-phone.png': 'groups-390-dark.png',
};

const test = [join(ROOT, 'scripts', 'test.mjs'), 'page/pictures'];
const { status } = spawnSync(process.execPath, test, { stdio: 'inherit' });
if (status !== 0) process.exit(1);
for (const [name, from] of Object.entries(PICTURES)) {
  copyFileSync(join(ROOT, 'target', 'pictures', from), join(ROOT, 'docs', 'images', name));
}
