import { assert, describe, it } from "@effect/vitest"
import { forwardHop, nextHop } from "../../src/cell/internal/routing.ts"

const hop = (me: string, target: string, connected: ReadonlyArray<string>) =>
  nextHop(me, target, (name) => connected.includes(name))

describe("the next hop (docs/wire/cellnet.md, 6.1)", () => {
  const trainer = "site-1.-client_api_t"
  const cases: ReadonlyArray<readonly [string, string, ReadonlyArray<string>, string | undefined]> = [
    // To oneself and to who is connected.
    ["site-1", "site-1", [], "site-1"],
    ["site-1.job", trainer, ["site-1", trainer], trainer],
    // Within the family: a sibling and an ancestor through the parent, a child only directly, a grandchild by a prefix.
    ["site-1.job", trainer, ["site-1"], "site-1"],
    ["site-1.job", trainer, ["server"], undefined],
    ["site-1.a.b", "site-1", ["site-1.a"], "site-1.a"],
    ["site-1", trainer, ["site-1.job", "server"], undefined],
    ["site-1", "site-1.a.b", ["site-1.a"], "site-1.a"],
    ["site-1", "site-1.a.b.c", ["site-1.a", "site-1.a.b"], "site-1.a.b"],
    ["site-1", "site-1.a.b", ["server"], undefined],
    // Other families: a prefix, the server, the parent.
    ["server", "site-1.job", ["site-1"], "site-1"],
    ["site-1.job", "site-2.job", ["site-2", "server", "site-1"], "site-2"],
    ["site-1.job", "site-2.job", ["server", "site-1"], "server"],
    ["site-1.job", "server", ["site-1"], "site-1"],
    ["site-1.job", "site-2", [], undefined],
    ["server", "site-2", ["site-1"], undefined],
    // A prefix is one of whole parts.
    ["server", "site-10.job", ["site-1"], undefined]
  ]
  for (const [me, target, connected, expected] of cases) {
    it(`${me} to ${target} with ${connected.join(", ") || "nobody"}`, () => {
      assert.strictEqual(hop(me, target, connected), expected)
    })
  }
})

describe("loops (6.2)", () => {
  const forward = (target: string, passed: ReadonlyArray<string>, connected: ReadonlyArray<string>) =>
    forwardHop("site-1", target, passed, (name) => connected.includes(name))

  it("a hop that was passed is refused, the end never is", () => {
    assert.strictEqual(forward("site-1.a.b", ["x"], ["site-1.a"]), "site-1.a")
    assert.strictEqual(forward("site-1.a.b", ["site-1.a"], ["site-1.a"]), undefined)
    assert.strictEqual(forward("site-1.a", ["site-1.a"], ["site-1.a"]), "site-1.a")
  })
})
