/** A browser without a window, for the tests of the page. */

import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** Starts the browser that `HOLDFAST_CHROMIUM` names, or the Chromium of this machine. */
export function startBrowser(): Promise<Browser> {
  // Chromium's sandbox does not work for root, as in a container; the tests open their own pages alone.
  return chromium.launch({ executablePath: binary(), args: ['--no-sandbox'] });
}

function binary(): string {
  const named = process.env['HOLDFAST_CHROMIUM'];
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const found = folders.flatMap((folder) => NAMES.map((name) => join(folder, name)));
  const path = named ?? found.find((file) => existsSync(file));
  if (path !== undefined && existsSync(path)) return path;
  throw new Error(
    'the tests of the page need Chromium: install it (Debian: apt-get install --no-install-recommends chromium; ' +
      'macOS: brew install --cask chromium) or name its binary in HOLDFAST_CHROMIUM',
  );
}
