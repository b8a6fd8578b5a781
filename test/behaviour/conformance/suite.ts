/** The promises of holdfast on every target, as tests of one place. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { openOperations } from '../../support/holdfast.js';
import { ARGUMENTS } from './arguments.js';
import { ASKING } from './asking.js';
import { CLOSING } from './closing.js';
import { FENCES } from './fences.js';
import { HOLDING } from './holding.js';
import { NESTING } from './nested.js';
import { OWNED } from './owned.js';
import { type Host, Visit } from './place.js';
import { QUEUE } from './queue.js';
import { REFUSALS } from './refusals.js';
import { REPORTS } from './reports.js';
import { SEVERAL } from './several.js';
import { SHARING } from './shared.js';
import { TAKING } from './taking.js';
import { TAKING_OVER } from './taking-over.js';
import { UNDER_LOCK } from './under-lock.js';
import { WAITING } from './waiting.js';

const BEHAVIOURS = {
  ...TAKING,
  ...HOLDING,
  ...UNDER_LOCK,
  ...WAITING,
  ...QUEUE,
  ...SHARING,
  ...SEVERAL,
  ...NESTING,
  ...TAKING_OVER,
  ...OWNED,
  ...ASKING,
  ...FENCES,
  ...CLOSING,
  ...REFUSALS,
  ...REPORTS,
  ...ARGUMENTS,
};

/** Tries every behaviour on `host`. */
export function tryAllOn(host: Host): void {
  describe(`on ${host.name}`, () => {
    before(() => host.start());
    after(() => host.stop());
    for (const [title, behave] of Object.entries(BEHAVIOURS)) {
      if (host.promises?.(title) === false) continue;
      test(title, async () => {
        const visit = new Visit(host);
        try {
          await behave(visit);
        } finally {
          await visit.end();
        }
        assert.equal(openOperations(), 0, 'no promise may be left open');
        await host.quiet?.();
      });
    }
  });
}
