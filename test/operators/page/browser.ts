/** A browser without a window, for the tests of the page. */

import { type Browser, chromium } from 'playwright-core';
import { needs } from '../../support/tools.js';

const program = needs('chromium');

/** Starts the Chromium of this machine. */
export function startBrowser(): Promise<Browser> {
  // Chromium's sandbox does not work for root, as in a container; the tests open their own pages alone.
  return chromium.launch({ executablePath: program(), args: ['--no-sandbox'] });
}
