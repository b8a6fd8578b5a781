/** `holdfast completion`: a person types Tab in a shell. */

import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { removeFolder } from '../../../support/folders.js';
import { environment, MAIN } from '../support.js';
import { Terminal } from '../terminal.js';

/** How each shell is started without start files, and reads its completion. */
const STARTS = {
  bash: { start: 'bash --norc --noprofile', read: 'source <(holdfast completion bash)' },
  zsh: {
    start: 'zsh -f',
    read: 'autoload -U compinit; compinit -D -u; source <(holdfast completion zsh)',
  },
  fish: { start: 'fish --no-config', read: 'holdfast completion fish | source' },
} as const;

/** Declares the test of each shell. */
export function testTabIn(...shells: readonly (keyof typeof STARTS)[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-completion-'));
  const env = environment(undefined, { PATH: `${folder}:${process.env['PATH']}`, HOME: folder });

  before(() => {
    const source = `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`;
    writeFileSync(join(folder, 'holdfast'), source);
    writeFileSync(join(folder, 'deploy-all'), '#!/bin/sh\n');
    for (const name of ['holdfast', 'deploy-all']) chmodSync(join(folder, name), 0o755);
    writeFileSync(join(folder, 'certificate.pem'), '');
  });

  after(() => removeFolder(folder));

  for (const shell of shells) {
    test(`${shell} completes commands, options and values`, async () => {
      const { start, read } = STARTS[shell];
      const terminal = new Terminal(env);
      try {
        terminal.line(`cd ${folder}; exec ${start}`);
        terminal.line(`${read}; echo re''ad`);
        await terminal.shows(/^read$/m);
        for (const [typed, completed] of [
          ['holdfast wat', 'holdfast watch'],
          ['holdfast run --conf', 'holdfast run --conflict-exit-code'],
          ['holdfast run --mode ex', 'holdfast run --mode exclusive'],
          ['holdfast ls --ca cert', 'holdfast ls --ca certificate.pem'],
          ['holdfast fence-table pos', 'holdfast fence-table postgres'],
          ['holdfast run job -- deploy-al', 'holdfast run job -- deploy-all'],
        ] as const) {
          terminal.type(typed);
          terminal.key('Tab');
          await terminal.shows(new RegExp(`${completed}\\s*$`, 'm'));
          terminal.key('C-u');
        }
      } finally {
        terminal.close();
      }
    });
  }
}
