/** The first caller in a process of its own, which is stopped or killed: see `runApart`. */

import { outcomeOf, type Place, sceneOf } from './feature.js';
import { featureOf } from './lists.js';

const [list = '', name = '', place = ''] = process.argv.slice(2);

async function main(): Promise<void> {
  const feature = featureOf(list, name);
  const scene = sceneOf(JSON.parse(place) as Place);
  const client = await feature.open(scene);
  const outcome = await outcomeOf(feature.first(client, scene));
  const end = new Promise((resolve) => process.once('message', resolve));
  process.send?.(outcome);
  await end;
  await feature.close(client, scene);
  process.exit(0);
}

void main();
process.once('disconnect', () => process.exit(0));
