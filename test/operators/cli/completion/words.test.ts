/** What the scripts of `holdfast completion` know. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ends, environment } from '../support.js';

test('the scripts name every command and every option of the help', async () => {
  const env = environment();
  const { stdout: help } = await ends(0, env, '--help');
  const commands = Array.from(help.matchAll(/^ {2}([a-z-]+) (?:\[|<)/gm), ([, name = '']) => name);
  assert.ok(commands.includes('run') && commands.includes('completion'));
  const shells = ['bash', 'zsh', 'fish'];
  const scripts = await Promise.all(shells.map((shell) => ends(0, env, 'completion', shell)));
  for (const command of commands.filter((name) => name !== 'help')) {
    const { stdout } = await ends(0, env, command, '--help');
    const options = stdout.matchAll(/^ {2}(?:-\w, )?--([a-z-]+)/gm);
    for (const word of [command, ...Array.from(options, ([, option = '']) => option)]) {
      for (const script of scripts) assert.match(script.stdout, new RegExp(`\\b${word}\\b`));
    }
  }
});
