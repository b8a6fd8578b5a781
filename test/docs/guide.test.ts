/** What the README, the guide and its Chinese half, the reference and the page on testing show. */

import { after, before, beforeEach } from 'node:test';
import { runPage } from './run-page.js';
import { Shop } from './shop.js';

let shop: Shop;

before(async () => {
  shop = await Shop.open();
});

after(() => shop?.close());

beforeEach(() => shop.reset());

const surroundings = () => shop.surroundings;

runPage('README.md', {
  surroundings,
  otherwise: {
    'npm run demo': { because: 'it builds the addon; test/docs/demo.test.ts runs the demo' },
  },
});

runPage('docs/guide.md', { surroundings });
runPage('docs/guide.zh-CN.md', { surroundings });
runPage('docs/reference.md', { surroundings });

const run = {
  because: 'it is a file of examples/testing; test/docs/examples.test.ts runs and compares it',
};
runPage('docs/testing.md', {
  surroundings,
  otherwise: {
    '// shop.js': run,
    '// shop.test.mjs': run,
  },
});
