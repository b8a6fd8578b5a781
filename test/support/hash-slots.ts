/** The slots of a Cluster. */

/** The hash of a key without a tag, as Redis Cluster takes it: CRC-16/XMODEM. */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) {
      crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
  }
  return crc % 16_384;
}

/** The slot of a key, or of its tag. */
export function slotOfKey(key: string): number {
  return slotOf(/\{([^}]+)\}/.exec(key)?.[1] ?? key);
}
