// What a shared library says of itself: the system and processor that it is for, and the libraries that it needs.
// It reads the formats of Linux (ELF), Windows (PE) and macOS (Mach-O), of 64 bits.

const CPUS = {
  elf: { 62: 'x64', 183: 'arm64' },
  pe: { 34404: 'x64', 43620: 'arm64' },
  mach: { 16777223: 'x64', 16777228: 'arm64' },
};

/**
 * `{ system, cpu, libraries }`; for macOS also `least`, the oldest version on which it loads, and whether it is `signed`,
 * without which no Mac with arm64 loads it. Throws if the bytes are none of these formats.
 */
export function described(bytes) {
  if (bytes.readUInt32BE(0) === 0x7f454c46 && bytes[4] === 2) return elf(bytes);
  if (bytes.readUInt32LE(0) === 0xfeedfacf) return mach(bytes);
  if (bytes.readUInt16BE(0) === 0x4d5a) return pe(bytes, bytes.readUInt32LE(0x3c));
  throw new Error('this is no library of Linux, Windows or macOS');
}

function elf(bytes) {
  const long = (at) => Number(bytes.readBigUInt64LE(at));
  const [start, size] = [long(32), bytes.readUInt16LE(54)];
  const segments = each(bytes.readUInt16LE(56), (index) => {
    const at = start + index * size;
    const type = bytes.readUInt32LE(at);
    return { type, offset: long(at + 8), address: long(at + 16), length: long(at + 32) };
  });
  const dynamic = segments.find(({ type }) => type === 2);
  const entries = each(dynamic.length / 16, (index) => {
    const at = dynamic.offset + index * 16;
    return { tag: long(at), value: long(at + 8) };
  });
  const strings = entries.find(({ tag }) => tag === 5).value;
  const names = placed(
    strings,
    segments.filter(({ type }) => type === 1),
  );
  const needed = entries.filter(({ tag }) => tag === 1);
  return {
    system: 'linux',
    cpu: CPUS.elf[bytes.readUInt16LE(18)],
    libraries: needed.map(({ value }) => text(bytes, names + value)),
  };
}

function pe(bytes, header) {
  const options = header + 24;
  const start = options + bytes.readUInt16LE(header + 20);
  const sections = each(bytes.readUInt16LE(header + 6), (index) => {
    const [length, address, , offset] = each(4, (n) =>
      bytes.readUInt32LE(start + index * 40 + 8 + n * 4),
    );
    return { length, address, offset };
  });
  const libraries = [];
  // The second of the directories, which begin here, lists the imports; an entry without a name ends it.
  const imports = placed(bytes.readUInt32LE(options + 112 + 8), sections);
  for (let at = imports; bytes.readUInt32LE(at + 12) !== 0; at += 20) {
    libraries.push(text(bytes, placed(bytes.readUInt32LE(at + 12), sections)));
  }
  return { system: 'win32', cpu: CPUS.pe[bytes.readUInt16LE(header + 4)], libraries };
}

function mach(bytes) {
  const found = { system: 'darwin', cpu: CPUS.mach[bytes.readUInt32LE(4)], libraries: [] };
  found.signed = false;
  let at = 32;
  for (let left = bytes.readUInt32LE(16); left > 0; left--) {
    const [command, size] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
    // LC_LOAD_DYLIB, and the one that may be missing.
    if (command === 0xc || command === 0x80000018) {
      found.libraries.push(text(bytes, at + bytes.readUInt32LE(at + 8)));
    }
    // LC_BUILD_VERSION, whose oldest version is 16 bits and twice 8.
    if (command === 0x32) found.least = `${bytes.readUInt16LE(at + 14)}.${bytes[at + 13]}`;
    // LC_CODE_SIGNATURE
    if (command === 0x1d) found.signed = true;
    at += size;
  }
  return found;
}

/** Where in the file an address of memory is. */
function placed(address, parts) {
  const part = parts.find(
    (each) => address >= each.address && address < each.address + each.length,
  );
  return address - part.address + part.offset;
}

function text(bytes, at) {
  return bytes.toString('latin1', at, bytes.indexOf(0, at));
}

function each(count, make) {
  return Array.from({ length: count }, (_, index) => make(index));
}
