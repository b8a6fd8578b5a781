import { needs } from '../../../support/tools.js';
import { testTabIn } from './tab.js';

needs('shells');

testTabIn('zsh', 'fish');
