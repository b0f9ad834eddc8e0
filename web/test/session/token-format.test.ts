import { describe, expect, it } from "vitest";
import { isLinkCode, isToken, fingerprintOf } from "../../src/session/token-format";

// As the server makes them.
const TOKEN = "tlt_000004yYLDbBbvYq4owUA9tjl6Cu89Dgw3i4j7A";
const CODE = "tls_00000doQjq9s04VqnFbW4EXCK7uzKTcPC22hubX";

describe("a token", () => {
  it("differs from a link code and any other text", () => {
    expect([isToken(TOKEN), isLinkCode(CODE), isToken(CODE), isLinkCode(TOKEN)]).toEqual([true, true, false, false]);
    for (const other of ["", "tlt_", TOKEN.slice(1), TOKEN.slice(0, -1), `${TOKEN}x`, ` ${TOKEN}`]) {
      expect(isToken(other)).toBe(false);
    }
  });

  it("is invalid with one changed character", () => {
    for (let place = 4; place < TOKEN.length; place++) {
      const mistyped = TOKEN.slice(0, place) + (TOKEN[place] === "a" ? "b" : "a") + TOKEN.slice(place + 1);
      expect(isToken(mistyped)).toBe(false);
    }
  });

  it("has a fingerprint", () => {
    expect(fingerprintOf(TOKEN)).toBe(TOKEN.slice(-6));
  });
});
