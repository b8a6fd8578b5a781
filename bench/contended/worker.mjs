// One of the processes of a contender.

import { answer } from '../answer.mjs';
import { contenderCalled } from '../contenders.mjs';
import { contend } from './contend.mjs';

const { open } = contenderCalled(process.argv[2]);
let contender;

answer({
  async open(url) {
    contender = await open(url);
  },
  contend(run) {
    return contend(contender, run);
  },
});
