/** `holdfast completion`: a person types Tab in each of the shells. */

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathOf, SHELLS } from '../../support/tools.js';
import { ends, environment, MAIN, Terminal } from './support.js';

/** How each shell is started without start files, and reads its completion. */
const STARTS: Readonly<Record<string, { start: string; read: string }>> = {
  bash: { start: 'bash --norc --noprofile', read: 'source <(holdfast completion bash)' },
  zsh: {
    start: 'zsh -f',
    read: 'autoload -U compinit; compinit -D -u; source <(holdfast completion zsh)',
  },
  fish: { start: 'fish --no-config', read: 'holdfast completion fish | source' },
};

const folder = mkdtempSync(join(tmpdir(), 'holdfast-completion-'));
const env = environment(undefined, { PATH: `${folder}:${process.env['PATH']}`, HOME: folder });

before(() => {
  writeFileSync(join(folder, 'holdfast'), `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`);
  writeFileSync(join(folder, 'deploy-all'), '#!/bin/sh\n');
  for (const name of ['holdfast', 'deploy-all']) chmodSync(join(folder, name), 0o755);
  writeFileSync(join(folder, 'certificate.pem'), '');
});

after(() => rmSync(folder, { recursive: true, force: true }));

for (const [shell, { start, read }] of Object.entries(STARTS)) {
  test(`${shell} completes commands, options and values`, async () => {
    if (shell !== 'bash') pathOf(SHELLS, shell);
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

test('the scripts name every command and every option of the help', async () => {
  const { stdout: help } = await ends(0, env, '--help');
  const commands = Array.from(help.matchAll(/^ {2}([a-z-]+) (?:\[|<)/gm), ([, name = '']) => name);
  assert.ok(commands.includes('run') && commands.includes('completion'));
  const shells = Object.keys(STARTS);
  const scripts = await Promise.all(shells.map((shell) => ends(0, env, 'completion', shell)));
  for (const command of commands.filter((name) => name !== 'help')) {
    const { stdout } = await ends(0, env, command, '--help');
    const options = stdout.matchAll(/^ {2}(?:-\w, )?--([a-z-]+)/gm);
    for (const word of [command, ...Array.from(options, ([, option = '']) => option)]) {
      for (const script of scripts) assert.match(script.stdout, new RegExp(`\\b${word}\\b`));
    }
  }
});
