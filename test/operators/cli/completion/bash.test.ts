import { testTabIn } from './tab.js';

testTabIn('bash');
