/** The format of tokens and link codes: a prefix, 33 secret digits, and a checksum of 6. */

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const CHECKSUM_LENGTH = 6;

/** Whether this can be a token: the checksum catches typos and truncation. */
export function isToken(text: string): boolean {
  return isSecret("tlt_", text);
}

export function isLinkCode(text: string): boolean {
  return isSecret("tls_", text);
}

/** The checksum of a secret, which identifies it to the tabs of this browser and reveals nothing. */
export function fingerprintOf(secret: string): string {
  return secret.slice(-CHECKSUM_LENGTH);
}

function isSecret(prefix: string, text: string): boolean {
  const isWellFormed = text.startsWith(prefix) && /^[0-9A-Za-z]{39}$/.test(text.slice(prefix.length));
  return isWellFormed && fingerprintOf(text) === base62(crc32(text.slice(0, -CHECKSUM_LENGTH)));
}

function base62(number: number): string {
  let digits = "";
  for (let rest = number; digits.length < CHECKSUM_LENGTH; rest = Math.floor(rest / 62)) {
    digits = DIGITS[rest % 62] + digits;
  }
  return digits;
}

function crc32(text: string): number {
  let sum = ~0;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}
