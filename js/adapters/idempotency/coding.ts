/** The content codings of answers: what a compressor made for one client, another may not accept. */

import { promisify } from 'node:util';
import * as zlib from 'node:zlib';
import type { Answer } from '../../base/answer.js';

type Decoder = (bytes: Uint8Array) => Promise<Buffer>;

// Node has zstd since 22.15.
const { zstdDecompress } = zlib as { zstdDecompress?: typeof zlib.gunzip };
const DECODERS: Readonly<Record<string, Decoder>> = {
  br: promisify(zlib.brotliDecompress),
  deflate: promisify(zlib.inflate),
  gzip: promisify(zlib.gunzip),
  ...(zstdDecompress && { zstd: promisify(zstdDecompress) as Decoder }),
};

/** Whether the header Accept-Encoding names the coding of an answer that has one. @internal */
export function accepts(header: unknown, coding: unknown): boolean {
  if (coding === undefined) return false;
  return String(header ?? '')
    .toLowerCase()
    .split(',')
    .some((each) => {
      const [name, weight = '1'] = each.trim().split(/\s*;\s*q=/);
      return name === String(coding).toLowerCase() && Number(weight) > 0;
    });
}

/** The answer without its content coding; unchanged if that is none of these. @internal */
export async function decode(answer: Answer & { readonly body: Uint8Array }): Promise<Answer> {
  const { 'content-encoding': coding, ...headers } = answer.headers;
  const decoder = DECODERS[String(coding).toLowerCase()];
  if (decoder === undefined) return answer;
  return { ...answer, headers, body: await decoder(answer.body) };
}
