import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as Names from "../../src/clientapi/TrainerName.ts"

const isGood = <A, E>(result: Result.Result<A, E>) => Result.isSuccess(result)

const failure = <A, E>(result: Result.Result<A, E>): E => {
  assert(Result.isFailure(result))
  return result.failure
}

describe("TrainerName", () => {
  it("is made of the job's name and the attach id", () => {
    const name = Result.getOrThrow(Names.trainerName("server.site-1.job-7", "gpu_1"))
    assert.deepStrictEqual(
      { ...name },
      {
        cjFqcn: "server.site-1.job-7",
        jobId: "job-7",
        cpFqcn: "server.site-1",
        siteName: "site-1",
        attachId: "gpu_1",
        trainerFqcn: "server.site-1.-client_api_gpu_1"
      }
    )
  })

  it("takes 1 to 64 letters, digits, underscores and dashes for an attach id", () => {
    for (const good of ["a", "A-z_0", "-", "x".repeat(64)]) {
      assert.isTrue(isGood(Names.attachId(good)), good)
      assert.isTrue(Schema.is(Names.AttachId)(good), good)
    }
    for (const bad of ["", "x".repeat(65), "a.b", "a b", "a\n", "é", "a/b", 7, null, undefined]) {
      const error = failure(Names.attachId(bad))
      assert.strictEqual(error.field, "attach_id")
      assert.include(error.message, bad === undefined ? "missing" : error.value)
      assert.isFalse(Schema.is(Names.AttachId)(bad), String(bad))
    }
  })

  it("takes one part of a cell's name for a site", () => {
    for (const good of ["site-1", "A_b~c"]) assert.isTrue(isGood(Names.siteName(good)), good)
    for (const bad of ["", "a.b", " a", "a ", "..", "a/b", 1, null]) {
      assert.isFalse(isGood(Names.siteName(bad)), String(bad))
    }
  })

  it("wants a client job to be a direct child of its parent, whose last part is the site", () => {
    const job = Result.getOrThrow(Names.parseJobName("site-1.job", { site: "site-1", cpFqcn: "site-1" }))
    assert.deepStrictEqual({ ...job }, { cjFqcn: "site-1.job", jobId: "job", cpFqcn: "site-1", siteName: "site-1" })
    for (const bad of ["site-1", "site-1..job", "site-1.site-1", "site-1.jo b", ".job", " site-1.job", "", 3, null]) {
      assert.isFalse(isGood(Names.parseJobName(bad)), String(bad))
    }
    assert.include(failure(Names.parseJobName("site-2.job", { site: "site-1" })).message, '"site-1"')
    assert.include(failure(Names.parseJobName("a.site-1.x.job", { cpFqcn: "a.site-1" })).message, "direct child")
  })

  it("refuses a parent below a trainer of the same id, and parents that are no names", () => {
    assert.strictEqual(failure(Names.trainerFqcn("a.-client_api_t", "t")).field, "trainer_fqcn")
    assert.strictEqual(failure(Names.trainerFqcn("", "t")).field, "cp_fqcn")
    assert.strictEqual(failure(Names.trainerFqcn("a b", "t")).field, "cp_fqcn")
    assert.strictEqual(failure(Names.trainerName("site-1.job", "a b")).field, "attach_id")
  })

  it("shortens what it shows", () => {
    assert.isBelow(failure(Names.attachId("x".repeat(10_000))).message.length, 300)
  })
})
