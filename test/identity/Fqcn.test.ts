import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Fqcn from "../../src/identity/Fqcn.ts"

const problem = (name: unknown) =>
  Result.match(Fqcn.validate(name), { onSuccess: () => undefined, onFailure: (error) => error.problem })

describe("Fqcn", () => {
  it("validate keeps good names and strips what Python strips", () => {
    for (const name of ["server", "site-1", "relay-a.site-1", "site-1.-client_api_x", "~a_.B-9", "A.a"]) {
      assert.deepStrictEqual(Fqcn.validate(name), Result.succeed(name))
      assert.deepStrictEqual(Fqcn.validate(` \t\n\u001c${name}\u0085\u3000\r\n`), Result.succeed(name))
    }
  })

  it("validate says what is wrong in the reference's words", () => {
    assert.strictEqual(problem(7), "not a string")
    assert.strictEqual(problem(undefined), "not a string")
    assert.strictEqual(problem(""), "empty")
    assert.strictEqual(problem(" \n\u001f"), "empty")
    assert.strictEqual(problem("a/b"), "invalid char")
    assert.strictEqual(problem("a b"), "invalid char")
    assert.strictEqual(problem("\ufeffa"), "invalid char")
    assert.strictEqual(problem("é..é"), "invalid char")
    assert.strictEqual(problem("."), "empty part")
    assert.strictEqual(problem("a..b"), "empty part")
    assert.strictEqual(problem(".a"), "empty part")
    assert.strictEqual(problem("a."), "empty part")
    assert.strictEqual(problem("a.b.a"), "dup 'a'")
    assert.strictEqual(problem("p.p"), "dup 'p'")
  })

  it("a long run of blanks inside a name costs no more than its length", () => {
    assert.strictEqual(problem(`a${" ".repeat(1_000_000)}b`), "invalid char")
  })

  it("relations", () => {
    assert.deepStrictEqual(Fqcn.parts("a.b.c"), ["a", "b", "c"])
    assert.strictEqual(Fqcn.join("a", "b", "c"), "a.b.c")
    assert.strictEqual(Fqcn.join("", "b"), "b")
    assert.strictEqual(Fqcn.parent("a.b.c"), "a.b")
    assert.strictEqual(Fqcn.parent("a"), "")
    assert.strictEqual(Fqcn.leaf("a.b.c"), "c")
    assert.strictEqual(Fqcn.leaf("a"), "a")
    assert.strictEqual(Fqcn.root("a.b.c"), "a")
    assert.strictEqual(Fqcn.root("a"), "a")
    assert.isTrue(Fqcn.isAncestor("a", "a.b.c"))
    assert.isFalse(Fqcn.isAncestor("a", "a"))
    assert.isFalse(Fqcn.isAncestor("a", "ab.c"))
    assert.isTrue(Fqcn.isParent("a.b", "a.b.c"))
    assert.isFalse(Fqcn.isParent("a", "a.b.c"))
    assert.isFalse(Fqcn.isParent("", "a"))
    assert.isTrue(Fqcn.sameFamily("a.b", "a.c.d"))
    assert.isFalse(Fqcn.sameFamily("a.b", "ab"))
  })
})
