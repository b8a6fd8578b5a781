/** The slots of a Redis Cluster, which decide the server of a key. */

const SLOTS = 16_384;

/**
 * The part of a key that Cluster hashes, if not all of it: a non-empty text between its first `{` and the first `}`
 * after that.
 *
 * Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>
 *
 * @internal
 */
export function hashTagOf(key: string): string | undefined {
  return /^[^{]*\{([^}]+)\}/.exec(key)?.[1];
}

/** CRC-16/XMODEM, appendix A of the specification. */
function crc16(text: string): number {
  let crc = 0;
  for (const byte of Buffer.from(text)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

/**
 * The smallest number that is in the slot of a key: as a hash tag it leads other keys there. The search takes about a
 * millisecond.
 *
 * @internal
 */
export function slotTagOf(key: string): string {
  const slot = crc16(hashTagOf(key) ?? key) % SLOTS;
  let number = 0;
  while (crc16(`${number}`) % SLOTS !== slot) number += 1;
  return `${number}`;
}
