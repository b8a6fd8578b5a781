/** The lists of features, by their files. */

import { join } from 'node:path';
import type { Feature } from './feature.js';

/** The features of a file beside this one. */
export function featuresOf(list: string): readonly Feature[] {
  return (require(join(__dirname, `${list}.js`)) as { features: readonly Feature[] }).features;
}

export function featureOf(list: string, name: string): Feature {
  const found = featuresOf(list).find((feature) => feature.name === name);
  if (found === undefined) throw new Error(`${list} has no feature "${name}"`);
  return found;
}
